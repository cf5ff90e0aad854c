//! The C functions of PyTorch that the operators need, looked up at run time.
//!
//! They are declared in `torch/csrc/inductor/aoti_torch/c/shim.h` and `torch/csrc/stable/c/shim.h`, which PyTorch keeps
//! compatible from release to release.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LAZY};
use symmem::ElementType;

use super::error::{CallError, LoadError};

/// A tensor behind PyTorch's C ABI (`AtenTensorOpaque`).
#[repr(C)]
pub struct AtenTensor {
    _private: [u8; 0],
}

/// A set of registrations behind PyTorch's C ABI (`TorchLibraryOpaque`).
#[repr(C)]
pub struct TorchLibrary {
    _private: [u8; 0],
}

/// What a C function returns: 0 for success.
pub type Status = i32;

/// The C functions report success by this.
pub const SUCCESS: Status = 0;

/// An operator as PyTorch calls it: the stack of `max(inputs, outputs)` values, the number of inputs, of outputs. It may
/// throw a C++ exception.
pub type Kernel = unsafe extern "C-unwind" fn(*mut u64, u64, u64);

type Read<T> = unsafe extern "C" fn(NonNull<AtenTensor>, *mut T) -> Status;
type Code = unsafe extern "C" fn() -> i32;

/// The version of the ABI that this file is written for: 2.10, in the form of `TORCH_ABI_VERSION`.
pub const ABI_VERSION: u64 = (2 << 56) | (10 << 48);

/// glibc's and musl's value of `RTLD_NOLOAD`.
const RTLD_NOLOAD: i32 = 4;

macro_rules! symbols {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $name:literal since $since:literal;)*) => {
        /// PyTorch's functions.
        pub struct Symbols {
            $($(#[$doc])* pub $field: $type,)*
            /// The device type that means host memory.
            pub cpu: i32,
            /// The device type that means a GPU.
            pub cuda: i32,
            /// The current stream of a GPU; absent where PyTorch has no GPU support.
            pub current_stream: Option<unsafe extern "C" fn(i32, *mut *mut c_void) -> Status>,
            /// The text of the last exception on this thread; PyTorch 2.13 and later.
            reason: Option<unsafe extern "C" fn() -> *const c_char>,
            /// The element type of each of PyTorch's codes.
            elements: [Option<ElementType>; 64],
        }

        impl Symbols {
            /// Looks every function up in the libraries at these paths. Python must have loaded them. `cuda` is for
            /// builds of PyTorch with GPU support.
            pub fn load(cpu: &str, cuda: Option<&str>) -> Result<Self, LoadError> {
                let library = open(cpu)?;
                // SAFETY: the types are those of the headers named above.
                let mut symbols = unsafe {
                    Self {
                        $($field: find(&library, $name, $since)?,)*
                        cpu: constant(&library, "aoti_torch_device_type_cpu")?,
                        cuda: constant(&library, "aoti_torch_device_type_cuda")?,
                        current_stream: None,
                        reason: find(&library, "torch_exception_get_what_without_backtrace", "2.13").ok(),
                        elements: [None; 64],
                    }
                };
                for (element, name) in ELEMENTS {
                    // SAFETY: all of these take nothing and return an int32_t.
                    let code = unsafe { constant(&library, name)? };
                    if let Some(slot) = usize::try_from(code).ok().and_then(|code| symbols.elements.get_mut(code)) {
                        *slot = Some(element);
                    }
                }
                if let Some(path) = cuda {
                    let library = open(path)?;
                    // SAFETY: the type is that of the header named above.
                    let function = unsafe { find(&library, "aoti_torch_get_current_cuda_stream", "2.6")? };
                    symbols.current_stream = Some(function);
                }
                Ok(symbols)
            }
        }
    };
}

symbols! {
    /// Throws a C++ exception with this text if the first argument is false.
    check: unsafe extern "C-unwind" fn(bool, *const c_char, *const c_char, u32, *const c_char)
        = "aoti_torch_check" since "2.6";
    /// Opens a namespace for more definitions.
    library_fragment: unsafe extern "C" fn(*const c_char, *const c_char, u32, *mut *mut TorchLibrary) -> Status
        = "aoti_torch_library_init_fragment" since "2.7";
    /// Opens a namespace for implementations under one dispatch key.
    library_implementations:
        unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut *mut TorchLibrary) -> Status
        = "aoti_torch_library_init_impl" since "2.7";
    /// Defines an operator by its schema.
    library_define: unsafe extern "C" fn(NonNull<TorchLibrary>, *const c_char) -> Status
        = "aoti_torch_library_def" since "2.7";
    /// Gives an operator its implementation.
    library_implement: unsafe extern "C" fn(NonNull<TorchLibrary>, *const c_char, Kernel, u64) -> Status
        = "torch_library_impl" since "2.10";
    /// Undoes all registrations that were made with this object.
    library_delete: unsafe extern "C" fn(NonNull<TorchLibrary>) -> Status
        = "aoti_torch_delete_library_object" since "2.7";
    /// Gives one reference to a tensor back.
    tensor_delete: unsafe extern "C" fn(NonNull<AtenTensor>) -> Status
        = "aoti_torch_delete_tensor_object" since "2.6";
    /// Number of dimensions.
    dimensions: Read<i64> = "aoti_torch_get_dim" since "2.6";
    /// Sizes; they belong to the tensor.
    sizes: Read<*const i64> = "aoti_torch_get_sizes" since "2.6";
    /// Strides, in elements; they belong to the tensor.
    strides: Read<*const i64> = "aoti_torch_get_strides" since "2.6";
    /// Number of elements.
    elements_of: Read<i64> = "aoti_torch_get_numel" since "2.6";
    /// Code of the element type.
    element_type: Read<i32> = "aoti_torch_get_dtype" since "2.6";
    /// Code of the device type.
    device_type: Read<i32> = "aoti_torch_get_device_type" since "2.6";
    /// Index of the device.
    device_index: Read<i32> = "aoti_torch_get_device_index" since "2.6";
    /// Whether the elements lie in order with no gaps.
    is_contiguous: Read<bool> = "aoti_torch_is_contiguous" since "2.8";
    /// Address of the first element, to read.
    address: Read<*const c_void> = "torch_get_const_data_ptr" since "2.10";
    /// Address of the first element, to write. A lazily cloned tensor gets its own memory first.
    address_mut: Read<*mut c_void> = "torch_get_mutable_data_ptr" since "2.10";
    /// Allocates a tensor: dimensions, sizes, strides, element type, device type and index, the new reference.
    empty: unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut *mut AtenTensor) -> Status
        = "aoti_torch_empty_strided" since "2.6";
}

/// The functions that return the code of an element type.
const ELEMENTS: [(ElementType, &str); 14] = [
    (ElementType::F16, "aoti_torch_dtype_float16"),
    (ElementType::Bf16, "aoti_torch_dtype_bfloat16"),
    (ElementType::F32, "aoti_torch_dtype_float32"),
    (ElementType::F64, "aoti_torch_dtype_float64"),
    (ElementType::I8, "aoti_torch_dtype_int8"),
    (ElementType::U8, "aoti_torch_dtype_uint8"),
    (ElementType::I16, "aoti_torch_dtype_int16"),
    (ElementType::I32, "aoti_torch_dtype_int32"),
    (ElementType::I64, "aoti_torch_dtype_int64"),
    (ElementType::U16, "aoti_torch_dtype_uint16"),
    (ElementType::U32, "aoti_torch_dtype_uint32"),
    (ElementType::U64, "aoti_torch_dtype_uint64"),
    (ElementType::F8E4M3, "aoti_torch_dtype_float8_e4m3fn"),
    (ElementType::F8E5M2, "aoti_torch_dtype_float8_e5m2"),
];

impl Symbols {
    /// The element type that PyTorch means by this code, if a collective can work on it.
    pub fn element(&self, code: i32) -> Option<ElementType> {
        usize::try_from(code)
            .ok()
            .and_then(|code| self.elements.get(code).copied().flatten())
    }

    /// The error for a function that failed, with PyTorch's words where it gives them.
    #[cold]
    pub fn failed(&self, function: &'static str) -> CallError {
        let reason = self.reason.and_then(|reason| {
            // SAFETY: the function takes nothing.
            let text = unsafe { reason() };
            if text.is_null() {
                return None;
            }
            // SAFETY: PyTorch gives null or a string that lives until the next exception on this thread.
            let text = unsafe { CStr::from_ptr(text) };
            Some(text.to_string_lossy().into_owned())
        });
        CallError::Torch { function, reason }
    }
}

static LOADED: OnceLock<Symbols> = OnceLock::new();

/// Looks the functions up, once in a process.
///
/// # Errors
/// If a library is not loaded, or has not all of them.
pub fn load(cpu: &str, cuda: Option<&str>) -> Result<&'static Symbols, LoadError> {
    match LOADED.get() {
        Some(symbols) => Ok(symbols),
        None => {
            let symbols = Symbols::load(cpu, cuda)?;
            Ok(LOADED.get_or_init(|| symbols))
        }
    }
}

/// Returns PyTorch's functions. Only a registered operator calls it, so they are there.
#[inline]
pub fn loaded() -> &'static Symbols {
    match LOADED.get() {
        Some(symbols) => symbols,
        None => std::process::abort(),
    }
}

/// The library at this path, which must be in the process already: another copy would have its own operators.
fn open(path: &str) -> Result<Library, LoadError> {
    // SAFETY: with RTLD_NOLOAD no code is loaded, so no initializer runs.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_NOLOAD) }.map_err(|error| {
        LoadError::Library {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    })
}

/// A function of the library.
///
/// # Safety
///
/// `T` must be a pointer to a function with the C function's type. PyTorch is never unloaded, so it stays valid.
unsafe fn find<T: Copy>(
    library: &Library,
    symbol: &'static str,
    since: &'static str,
) -> Result<T, LoadError> {
    // SAFETY: the caller vouches for the type.
    match unsafe { library.get::<T>(symbol) } {
        Ok(function) => Ok(*function),
        Err(_) => Err(LoadError::MissingSymbol { symbol, since }),
    }
}

/// What a function without arguments returns.
///
/// # Safety
///
/// The function must take nothing and return an `int32_t`.
unsafe fn constant(library: &Library, symbol: &'static str) -> Result<i32, LoadError> {
    // SAFETY: the caller vouches for the type.
    let function: Code = unsafe { find(library, symbol, "2.6")? };
    // SAFETY: it takes nothing and only returns a number.
    Ok(unsafe { function() })
}
