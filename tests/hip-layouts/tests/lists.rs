//! Lists of the backend's structs, constants and functions, each with the binding's counterpart and the name in C.

use super::{compiler, constants, structs, table};

/// A struct of the backend and of the binding.
pub struct Struct {
    pub name: &'static str,
    /// The name in C.
    pub header: &'static str,
    /// (size, alignment) in the backend and in the binding, in bytes.
    pub ours: (usize, usize),
    pub theirs: (usize, usize),
    pub fields: Vec<Field>,
}

/// A field and its offsets in bytes.
pub struct Field {
    pub name: &'static str,
    /// The name in C.
    pub header: &'static str,
    pub ours: usize,
    pub theirs: usize,
}

/// A constant of the backend and of the binding, which may combine several constants of C; `theirs` is `None` if the
/// binding lacks it.
pub struct Number {
    pub name: &'static str,
    /// The constants' names in C.
    pub header: Vec<&'static str>,
    pub ours: u64,
    pub theirs: Option<u64>,
}

/// A function: (size, alignment) in bytes of each argument and the result.
pub struct Function {
    pub name: &'static str,
    pub ours: Vec<(usize, usize)>,
    pub theirs: Vec<(usize, usize)>,
}

/// Returns a field's name in C, which Rust may not allow.
pub fn field_in_c(name: &'static str) -> &'static str {
    match name {
        "type_" => "type",
        // An anonymous union of this field and its newer name.
        "__bindgen_anon_1" => "requestedHandleType",
        name => name,
    }
}

/// Returns a constant's name in C: the binding prefixes values with the enumeration's name.
fn constant_in_c(name: &'static str) -> &'static str {
    let value = name.rfind("_hip").or_else(|| name.find("_HIP_"));
    value.map_or(name, |start| &name[start + 1..])
}

/// Lists a struct of the backend and of the binding, field by field.
macro_rules! layout {
    ($ours:ty, $theirs:ident { $($our:ident = $their:ident),* $(,)? }) => {
        $crate::lists::Struct {
            name: stringify!($ours),
            header: stringify!($theirs),
            ours: (std::mem::size_of::<$ours>(), std::mem::align_of::<$ours>()),
            theirs: (std::mem::size_of::<hip_sys::$theirs>(), std::mem::align_of::<hip_sys::$theirs>()),
            fields: vec![$( $crate::lists::Field {
                name: stringify!($our),
                header: $crate::lists::field_in_c(stringify!($their)),
                ours: std::mem::offset_of!($ours, $our),
                theirs: std::mem::offset_of!(hip_sys::$theirs, $their),
            }, )*],
        }
    };
}
pub(crate) use layout;

pub fn structs() -> Vec<Struct> {
    vec![
        layout!(structs::Uuid, hipUUID {}),
        layout!(structs::IpcHandle, hipIpcMemHandle_t { reserved = reserved }),
        layout!(structs::MemoryLocation, hipMemLocation { kind = type_, id = id }),
        layout!(structs::AllocationProperties, hipMemAllocationProp {
            kind = type_,
            handle_types = __bindgen_anon_1,
            location = location,
            win32_metadata = win32HandleMetaData,
            flags = allocFlags,
        }),
        layout!(structs::ExternalHandle, hipExternalMemoryHandleDesc {
            kind = type_,
            handle = handle,
            size = size,
            flags = flags,
        }),
        layout!(structs::ExternalBuffer, hipExternalMemoryBufferDesc {
            offset = offset,
            size = size,
            flags = flags,
        }),
        layout!(structs::AccessDescription, hipMemAccessDesc {
            location = location,
            flags = flags,
        }),
    ]
}

/// Lists constants of the backend, each with the header's.
macro_rules! numbers {
    ($($ours:expr => $($theirs:ident)|+),* $(,)?) => {
        vec![$( Number {
            name: stringify!($ours),
            header: vec![$( constant_in_c(stringify!($theirs)) ),+],
            ours: u64::from($ours),
            theirs: Some($( u64::from(hip_sys::$theirs) )|+),
        }, )*]
    };
}

pub fn numbers() -> Vec<Number> {
    use constants::*;
    let mut all = numbers!(
        device_attribute::ASYNC_ENGINE_COUNT => hipDeviceAttribute_t_hipDeviceAttributeAsyncEngineCount,
        device_attribute::MULTIPROCESSOR_COUNT => hipDeviceAttribute_t_hipDeviceAttributeMultiprocessorCount,
        device_attribute::MAX_SHARED_MEMORY_PER_BLOCK
            => hipDeviceAttribute_t_hipDeviceAttributeMaxSharedMemoryPerBlock,
        device_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            => hipDeviceAttribute_t_hipDeviceAttributeVirtualMemoryManagementSupported,
        device_attribute::WALL_CLOCK_RATE => hipDeviceAttribute_t_hipDeviceAttributeWallClockRate,
        pointer_attribute::MEMORY_TYPE => hipPointer_attribute_HIP_POINTER_ATTRIBUTE_MEMORY_TYPE,
        pointer_attribute::IS_MANAGED => hipPointer_attribute_HIP_POINTER_ATTRIBUTE_IS_MANAGED,
        pointer_attribute::DEVICE_ORDINAL => hipPointer_attribute_HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        MEMORY_TYPE_DEVICE => hipMemoryType_hipMemoryTypeDevice,
        FUNCTION_MAX_THREADS_PER_BLOCK => hipFunction_attribute_HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        STREAM_NON_BLOCKING => hipStreamNonBlocking,
        CAPTURE_MODE_RELAXED => hipStreamCaptureMode_hipStreamCaptureModeRelaxed,
        EVENT_DEFAULT => hipEventDefault,
        HOST_PORTABLE_MAPPED_COHERENT => hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent,
        REGISTER_PORTABLE_AND_MAPPED => hipHostRegisterPortable | hipHostRegisterMapped,
        MALLOC_UNCACHED => hipDeviceMallocUncached,
        COPY_DEFAULT => hipMemcpyKind_hipMemcpyDefault,
        COPY_WITHOUT_COMPUTE_UNITS => hipMemcpyKind_hipMemcpyDeviceToDeviceNoCU,
        IPC_LAZY_ENABLE_PEER_ACCESS => hipIpcMemLazyEnablePeerAccess,
        HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            => hipMemAllocationHandleType_hipMemHandleTypePosixFileDescriptor,
        ALLOCATION_TYPE_PINNED => hipMemAllocationType_hipMemAllocationTypePinned,
        ALLOCATION_TYPE_UNCACHED => hipMemAllocationType_hipMemAllocationTypeUncached,
        LOCATION_TYPE_DEVICE => hipMemLocationType_hipMemLocationTypeDevice,
        ACCESS_READ_WRITE => hipMemAccessFlags_hipMemAccessFlagsProtReadWrite,
        RANGE_HANDLE_DMA_BUF => hipMemRangeHandleType_hipMemRangeHandleTypeDmaBufFd,
        EXTERNAL_MEMORY_OPAQUE_FD
            => hipExternalMemoryHandleType_enum_hipExternalMemoryHandleTypeOpaqueFd,
        GRANULARITY_RECOMMENDED
            => hipMemAllocationGranularity_flags_hipMemAllocationGranularityRecommended,
        result::SUCCESS => hipError_t_hipSuccess,
        result::INVALID_VALUE => hipError_t_hipErrorInvalidValue,
        result::OUT_OF_MEMORY => hipError_t_hipErrorOutOfMemory,
        result::DEINITIALIZED => hipError_t_hipErrorDeinitialized,
        result::INVALID_DEVICE_POINTER => hipError_t_hipErrorInvalidDevicePointer,
        result::INSUFFICIENT_DRIVER => hipError_t_hipErrorInsufficientDriver,
        result::NO_DEVICE => hipError_t_hipErrorNoDevice,
        result::INVALID_DEVICE => hipError_t_hipErrorInvalidDevice,
        result::INVALID_IMAGE => hipError_t_hipErrorInvalidImage,
        result::INVALID_CONTEXT => hipError_t_hipErrorInvalidContext,
        result::MAP_FAILED => hipError_t_hipErrorMapFailed,
        result::NO_BINARY_FOR_GPU => hipError_t_hipErrorNoBinaryForGpu,
        result::ECC_NOT_CORRECTABLE => hipError_t_hipErrorECCNotCorrectable,
        result::PEER_ACCESS_UNSUPPORTED => hipError_t_hipErrorPeerAccessUnsupported,
        result::NOT_READY => hipError_t_hipErrorNotReady,
        result::ILLEGAL_ADDRESS => hipError_t_hipErrorIllegalAddress,
        result::LAUNCH_TIMEOUT => hipError_t_hipErrorLaunchTimeOut,
        result::PEER_ACCESS_ALREADY_ENABLED => hipError_t_hipErrorPeerAccessAlreadyEnabled,
        result::CONTEXT_IS_DESTROYED => hipError_t_hipErrorContextIsDestroyed,
        result::ASSERT => hipError_t_hipErrorAssert,
        result::LAUNCH_FAILURE => hipError_t_hipErrorLaunchFailure,
        result::NOT_SUPPORTED => hipError_t_hipErrorNotSupported,
        result::STREAM_CAPTURE_UNSUPPORTED => hipError_t_hipErrorStreamCaptureUnsupported,
        result::STREAM_CAPTURE_WRONG_THREAD => hipError_t_hipErrorStreamCaptureWrongThread,
    );
    // Pointers that macros cast from numbers, and a constant of another library's header; no binding has them.
    let unbound = |name, header, ours| Number {
        name,
        header: vec![header],
        ours,
        theirs: None,
    };
    all.extend([
        unbound(
            "LAUNCH_PARAMETER_BUFFER_POINTER",
            "HIP_LAUNCH_PARAM_BUFFER_POINTER",
            LAUNCH_PARAMETER_BUFFER_POINTER as u64,
        ),
        unbound(
            "LAUNCH_PARAMETER_BUFFER_SIZE",
            "HIP_LAUNCH_PARAM_BUFFER_SIZE",
            LAUNCH_PARAMETER_BUFFER_SIZE as u64,
        ),
        unbound(
            "LAUNCH_PARAMETER_END",
            "HIP_LAUNCH_PARAM_END",
            LAUNCH_PARAMETER_END as u64,
        ),
        unbound("LINK_XGMI", "HSA_AMD_LINK_INFO_TYPE_XGMI", LINK_XGMI.into()),
    ]);
    all
}

/// Returns sizes and alignments of a function's arguments, then of its result.
pub trait Signature {
    fn shape() -> Vec<(usize, usize)>;
}

macro_rules! signatures {
    ($($argument:ident)*) => {
        impl<$($argument,)* R> Signature for unsafe extern "C" fn($($argument),*) -> R {
            fn shape() -> Vec<(usize, usize)> {
                vec![
                    $( (size_of::<$argument>(), align_of::<$argument>()), )*
                    (size_of::<R>(), align_of::<R>()),
                ]
            }
        }
    };
}

signatures!();
signatures!(A);
signatures!(A B);
signatures!(A B C);
signatures!(A B C D);
signatures!(A B C D E);
signatures!(A B C D E F);
signatures!(A B C D E F G H);
signatures!(A B C D E F G H I J K);

impl<F: Signature> Signature for Option<F> {
    fn shape() -> Vec<(usize, usize)> {
        F::shape()
    }
}

/// Lists the shape of a table's function and of the header's.
pub fn function<T, Ours: Signature, Theirs: Signature>(
    name: &'static str,
    _: fn(T) -> Ours,
    _: Theirs,
) -> Function {
    Function {
        name,
        ours: Ours::shape(),
        theirs: Theirs::shape(),
    }
}

/// Returns the shape of a table's function.
fn shape<T, Ours: Signature>(_: fn(T) -> Ours) -> Vec<(usize, usize)> {
    Ours::shape()
}

/// Lists every function of a table with the header's; `unbound` are those that the binding lacks. The compiler checks
/// the number of arguments, and that no function of the table is missing.
macro_rules! functions {
    ($table:ty { $($name:ident($($argument:tt)*))* } unbound { $($unbound:ident)* }) => {{
        #[allow(non_snake_case, reason = "named as the library names them")]
        fn complete(table: $table) {
            type Table = $table;
            let Table { $($name: _,)* $($unbound: _,)* } = table;
        }
        vec![$( function(
            stringify!($name),
            |table: $table| table.$name,
            hip_sys::$name as unsafe extern "C" fn($($argument),*) -> _,
        ), )*]
    }};
}

pub fn functions() -> Vec<Function> {
    functions!(table::Table {
        hipInit(_)
        hipDriverGetVersion(_)
        hipRuntimeGetVersion(_)
        hipGetErrorName(_)
        hipGetErrorString(_)
        hipGetLastError()
        hipGetDeviceCount(_)
        hipGetDevice(_)
        hipSetDevice(_)
        hipDeviceGetName(_ _ _)
        hipDeviceGetUuid(_ _)
        hipDeviceTotalMem(_ _)
        hipDeviceGetAttribute(_ _ _)
        hipDeviceGetPCIBusId(_ _ _)
        hipDeviceCanAccessPeer(_ _ _)
        hipDeviceEnablePeerAccess(_ _)
        hipStreamCreateWithFlags(_ _)
        hipStreamCreateWithPriority(_ _ _)
        hipStreamDestroy(_)
        hipStreamQuery(_)
        hipStreamSynchronize(_)
        hipStreamWaitEvent(_ _ _)
        hipStreamIsCapturing(_ _)
        hipStreamBeginCapture(_ _)
        hipStreamEndCapture(_ _)
        hipGraphInstantiateWithFlags(_ _ _)
        hipGraphLaunch(_ _)
        hipGraphExecDestroy(_)
        hipGraphDestroy(_)
        hipEventCreateWithFlags(_ _)
        hipEventDestroy(_)
        hipEventRecord(_ _)
        hipEventQuery(_)
        hipEventElapsedTime(_ _ _)
        hipMemGetInfo(_ _)
        hipMalloc(_ _)
        hipExtMallocWithFlags(_ _ _)
        hipFree(_)
        hipHostMalloc(_ _ _)
        hipHostFree(_)
        hipHostGetDevicePointer(_ _ _)
        hipHostRegister(_ _ _)
        hipHostUnregister(_)
        hipMemcpyAsync(_ _ _ _ _)
        hipMemcpy2DAsync(_ _ _ _ _ _ _ _)
        hipMemsetD8Async(_ _ _ _)
        hipPointerGetAttribute(_ _ _)
        hipMemGetAddressRange(_ _ _)
        hipIpcGetMemHandle(_ _)
        hipIpcOpenMemHandle(_ _ _)
        hipIpcCloseMemHandle(_)
        hipModuleLoadData(_ _)
        hipModuleUnload(_)
        hipModuleGetFunction(_ _ _)
        hipFuncGetAttribute(_ _ _)
        hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(_ _ _ _)
        hipModuleLaunchKernel(_ _ _ _ _ _ _ _ _ _ _)
        hipExtGetLinkTypeAndHopCount(_ _ _ _)
        hipMemGetAllocationGranularity(_ _ _)
        hipMemCreate(_ _ _ _)
        hipMemRelease(_)
        hipMemRetainAllocationHandle(_ _)
        hipMemExportToShareableHandle(_ _ _ _)
        hipMemImportFromShareableHandle(_ _ _)
        hipMemAddressReserve(_ _ _ _ _)
        hipMemAddressFree(_ _)
        hipMemMap(_ _ _ _ _)
        hipMemUnmap(_ _)
        hipMemSetAccess(_ _ _ _)
        hipMemGetAccess(_ _ _)
        hipMemGetHandleForAddressRange(_ _ _ _ _)
        hipImportExternalMemory(_ _)
        hipExternalMemoryGetMappedBuffer(_ _ _)
        hipDestroyExternalMemory(_)
    } unbound {
        // The version 5 function; later headers replace this name by a macro.
        hipGetDeviceProperties
    })
}

/// Functions that the binding lacks.
pub fn unbound_functions() -> Vec<Function> {
    vec![Function {
        name: "hipGetDeviceProperties",
        ours: shape(|table: table::Table| table.hipGetDeviceProperties),
        theirs: Vec::new(),
    }]
}

pub fn functions_of_the_compiler() -> Vec<Function> {
    functions!(compiler::Table {
        hiprtcVersion(_ _)
        hiprtcGetErrorString(_)
        hiprtcCreateProgram(_ _ _ _ _ _)
        hiprtcCompileProgram(_ _ _)
        hiprtcGetProgramLogSize(_ _)
        hiprtcGetProgramLog(_ _)
        hiprtcGetCodeSize(_ _)
        hiprtcGetCode(_ _)
        hiprtcDestroyProgram(_)
    } unbound {})
}
