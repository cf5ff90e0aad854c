//! What the HIP backend believes of AMD's runtime, against the types of a maintained binding of it.
//!
//! The binding has the headers of several releases and takes those of the ROCm that is installed, else the
//! newest it has. It is a feature of this crate and no plain dependency, as it need not know the release of
//! a machine that has ROCm: `cargo test -p xtask --features hip-sys --test layouts`.

#![allow(
    dead_code,
    reason = "of the backend's files, only types and numbers are looked at"
)]

#[path = "../../backend-hip/src/runtime/compiler.rs"]
mod compiler;
#[path = "../../backend-hip/src/runtime/constants.rs"]
mod constants;
#[path = "../../backend-hip/src/runtime/structs.rs"]
mod structs;
#[path = "../../backend-hip/src/runtime/table.rs"]
mod table;

use std::mem::{align_of, offset_of, size_of};
use symmem_core::backend::CallResult;
use symmem_core::backend::library::Library;

/// How the compiler would be opened. Nothing is opened here.
fn open_library(sonames: &[&str], advice: &str) -> CallResult<Library> {
    Library::open_first(sonames, &[], advice)
}

/// Size, alignment and offsets of the fields of two structs, field by field.
macro_rules! same_layout {
    ($ours:ty, $theirs:ty { $($our:ident = $their:ident),* $(,)? }) => {
        let name = stringify!($ours);
        assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), "size of {name}");
        $( assert_eq!(
            offset_of!($ours, $our), offset_of!($theirs, $their), "offset of {name}::{}", stringify!($our)
        ); )*
        // Ours may be stricter, where C has an array of bytes.
        assert!(align_of::<$ours>() >= align_of::<$theirs>(), "alignment of {name}");
    };
}

#[test]
fn structs_have_the_layout_of_the_headers() {
    same_layout!(structs::Uuid, hip_sys::hipUUID {});
    same_layout!(structs::IpcHandle, hip_sys::hipIpcMemHandle_t { reserved = reserved });
    same_layout!(structs::MemoryLocation, hip_sys::hipMemLocation { kind = type_, id = id });
    same_layout!(structs::AllocationProperties, hip_sys::hipMemAllocationProp {
        kind = type_,
        handle_types = __bindgen_anon_1,
        location = location,
        win32_metadata = win32HandleMetaData,
        flags = allocFlags,
    });
    same_layout!(structs::AccessDescription, hip_sys::hipMemAccessDesc {
        location = location,
        flags = flags,
    });
    // Ours is version 5's, which the headers no longer have; a runtime that filled in its own stays within.
    assert!(size_of::<structs::DeviceProperties>() >= size_of::<hip_sys::hipDeviceProp_tR0600>());
}

#[test]
#[should_panic = "offset of Moved::id"]
fn a_field_that_moved_is_found() {
    #[repr(C)]
    struct Moved {
        id: i32,
        kind: u32,
    }
    same_layout!(Moved, hip_sys::hipMemLocation { id = id, kind = type_ });
}

/// Numbers of ours, each beside the header's.
macro_rules! same_numbers {
    ($($ours:expr => $theirs:ident $(| $more:ident)*),* $(,)?) => {
        $( assert_eq!(
            u64::from($ours),
            u64::from(hip_sys::$theirs) $(| u64::from(hip_sys::$more))*,
            "{}", stringify!($ours)
        ); )*
    };
}

#[test]
fn numbers_are_those_of_the_headers() {
    use constants::*;
    same_numbers!(
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
        IPC_LAZY_ENABLE_PEER_ACCESS => hipIpcMemLazyEnablePeerAccess,
        HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            => hipMemAllocationHandleType_hipMemHandleTypePosixFileDescriptor,
        ALLOCATION_TYPE_PINNED => hipMemAllocationType_hipMemAllocationTypePinned,
        ALLOCATION_TYPE_UNCACHED => hipMemAllocationType_hipMemAllocationTypeUncached,
        LOCATION_TYPE_DEVICE => hipMemLocationType_hipMemLocationTypeDevice,
        ACCESS_READ_WRITE => hipMemAccessFlags_hipMemAccessFlagsProtReadWrite,
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
    );
}

#[test]
fn every_number_is_compared() {
    // Pointers made of numbers by macros, and a number of another library's header: no binding has them.
    const UNBOUND: [&str; 4] = [
        "LAUNCH_PARAMETER_BUFFER_POINTER",
        "LAUNCH_PARAMETER_BUFFER_SIZE",
        "LAUNCH_PARAMETER_END",
        "LINK_XGMI",
    ];
    let ours = include_str!("../../backend-hip/src/runtime/constants.rs");
    let numbers = ours
        .split("pub const ")
        .skip(1)
        .filter_map(|rest| rest.split_once(':'));
    let mut count = 0;
    for (name, _) in numbers.filter(|(name, _)| !UNBOUND.contains(name)) {
        let compared = include_str!("layouts.rs").contains(&format!("{name} =>"))
            || include_str!("layouts.rs").contains(&format!("{name}\n            =>"));
        assert!(compared, "{name} is not compared with the headers");
        count += 1;
    }
    assert!(count > 40, "{count} numbers: the file has another form");
}

/// Sizes and alignments of what a function takes, then of what it returns.
trait Signature {
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

/// A function of a table has the shape of the header's.
#[track_caller]
fn same_shape<T, Ours: Signature, Theirs: Signature>(name: &str, _: fn(T) -> Ours, _: Theirs) {
    assert_eq!(
        Ours::shape(),
        Theirs::shape(),
        "{name}: (size, alignment) of each argument and the result"
    );
}

/// Every function of a table beside the header's; `unbound` are those that the binding has not. The number
/// of arguments is compared by the compiler, and so is that no function of the table is left out.
macro_rules! same_functions {
    ($table:ty { $($name:ident($($argument:tt)*))* } unbound { $($unbound:ident)* }) => {
        #[allow(non_snake_case, reason = "named as the library names them")]
        fn complete(table: $table) {
            type Table = $table;
            let Table { $($name: _,)* $($unbound: _,)* } = table;
        }
        $( same_shape(
            stringify!($name),
            |table: $table| table.$name,
            hip_sys::$name as unsafe extern "C" fn($($argument),*) -> _,
        ); )*
    };
}

#[test]
fn functions_take_and_return_what_the_headers_say() {
    same_functions!(table::Table {
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
    } unbound {
        // By this name version 5's, which later headers replace by a macro.
        hipGetDeviceProperties
    });
}

#[test]
fn functions_of_the_compiler_take_and_return_what_the_headers_say() {
    same_functions!(compiler::Table {
        hiprtcVersion(_ _)
        hiprtcGetErrorString(_)
        hiprtcCreateProgram(_ _ _ _ _ _)
        hiprtcCompileProgram(_ _ _)
        hiprtcGetProgramLogSize(_ _)
        hiprtcGetProgramLog(_ _)
        hiprtcGetCodeSize(_ _)
        hiprtcGetCode(_ _)
        hiprtcDestroyProgram(_)
    } unbound {});
}

#[test]
#[should_panic = "hipSetDevice"]
fn a_function_with_another_argument_is_found() {
    struct Table {
        set_device: unsafe extern "C" fn(u64) -> u32,
    }
    let theirs = hip_sys::hipSetDevice as unsafe extern "C" fn(_) -> _;
    same_shape("hipSetDevice", |table: Table| table.set_device, theirs);
}
