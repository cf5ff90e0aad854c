//! Error numbers of the CUDA driver, which HIP shares.

/// An error's number.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

/// The result of a call: success, or the error number.
pub type Result<T = ()> = std::result::Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $number:literal,)*) => {
        impl Code {
            $(#[doc = concat!("`", stringify!($name), "`.")] pub const $name: Self = Self($number);)*
            /// Every error, with its name in the CUDA driver after `CUDA_ERROR_`.
            pub const ALL: &'static [(Self, &'static str)] =
                &[$((Self::$name, stringify!($name)),)*];
        }
    };
}
codes! {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    STUB_LIBRARY = 34,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    MAP_FAILED = 205,
    UNMAP_FAILED = 206,
    ALREADY_MAPPED = 208,
    NO_BINARY_FOR_GPU = 209,
    NOT_MAPPED = 211,
    ECC_UNCORRECTABLE = 214,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_PTX = 218,
    NVLINK_UNCORRECTABLE = 220,
    UNSUPPORTED_PTX_VERSION = 222,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_TIMEOUT = 702,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    ASSERT = 710,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    HARDWARE_STACK_ERROR = 714,
    ILLEGAL_INSTRUCTION = 715,
    MISALIGNED_ADDRESS = 716,
    INVALID_ADDRESS_SPACE = 717,
    INVALID_PC = 718,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    SYSTEM_NOT_READY = 802,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_MERGE = 902,
    STREAM_CAPTURE_UNMATCHED = 903,
    STREAM_CAPTURE_UNJOINED = 904,
    STREAM_CAPTURE_ISOLATION = 905,
    STREAM_CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    STREAM_CAPTURE_WRONG_THREAD = 908,
    TIMEOUT = 909,
    UNKNOWN = 999,
}

impl Code {
    /// Parses a number, or a name from [`Code::ALL`] with or without `CUDA_ERROR_`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse() {
            return Some(Self(number));
        }
        let name = text.strip_prefix("CUDA_ERROR_").unwrap_or(text);
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(code, _)| *code)
    }

    /// Whether this error loses the context, so that every later call repeats it.
    pub fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 700 | 702 | 710 | 714..=719)
    }
}
