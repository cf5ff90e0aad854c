//! Constants of the HIP API, by value, from `hip_runtime_api.h` of versions 5.2 to 7.14 unless noted.
//! `tests/hip-layouts` compares them.

/// Attributes of a device (`hipDeviceAttribute_t`).
pub mod device_attribute {
    #![allow(missing_docs, reason = "named as in hip_runtime_api.h")]
    pub const ASYNC_ENGINE_COUNT: u32 = 2;
    pub const MULTIPROCESSOR_COUNT: u32 = 63;
    pub const MAX_SHARED_MEMORY_PER_BLOCK: u32 = 74;
    /// From 5.3 on.
    pub const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: u32 = 89;
    /// Rate of the constant clock in kHz, from 5.3 on.
    pub const WALL_CLOCK_RATE: u32 = 10017;
}

/// Attributes of a pointer (`hipPointer_attribute`).
pub mod pointer_attribute {
    #![allow(missing_docs, reason = "named as in hip_runtime_api.h")]
    pub const MEMORY_TYPE: u32 = 2;
    pub const IS_MANAGED: u32 = 8;
    pub const DEVICE_ORDINAL: u32 = 9;
}

/// `hipMemoryTypeDevice`, from version 6 on.
pub const MEMORY_TYPE_DEVICE: u32 = 2;
/// `hipMemoryTypeDevice` before version 6.
pub const MEMORY_TYPE_DEVICE_BEFORE_6: u32 = 1;
/// `HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
pub const FUNCTION_MAX_THREADS_PER_BLOCK: u32 = 0;
/// `hipStreamNonBlocking`: not ordered with the null stream.
pub const STREAM_NON_BLOCKING: u32 = 1;
/// `hipStreamCaptureModeRelaxed`.
pub const CAPTURE_MODE_RELAXED: u32 = 2;
/// `hipEventDefault`: records the time.
pub const EVENT_DEFAULT: u32 = 0;
/// `hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent`: all devices can address the memory,
/// and no cache delays its data.
pub const HOST_PORTABLE_MAPPED_COHERENT: u32 = 1 | 2 | 0x4000_0000;
/// `hipHostRegisterPortable | hipHostRegisterMapped`.
pub const REGISTER_PORTABLE_AND_MAPPED: u32 = 1 | 2;
/// `hipDeviceMallocUncached`.
pub const MALLOC_UNCACHED: u32 = 3;
/// `hipMemcpyDefault`: the runtime infers the direction from the addresses.
pub const COPY_DEFAULT: u32 = 4;
/// `hipMemcpyDeviceToDeviceNoCU`, from 6.1 on.
pub const COPY_WITHOUT_COMPUTE_UNITS: u32 = 1024;
/// `hipIpcMemLazyEnablePeerAccess`, the only flag for opening a handle, from version 6 on.
pub const IPC_LAZY_ENABLE_PEER_ACCESS: u32 = 1;
/// The same flag before version 6.
pub const IPC_LAZY_ENABLE_PEER_ACCESS_BEFORE_6: u32 = 0;
/// `hipMemHandleTypePosixFileDescriptor`.
pub const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: u32 = 1;
/// `hipMemAllocationTypePinned`.
pub const ALLOCATION_TYPE_PINNED: u32 = 1;
/// `hipMemAllocationTypeUncached`, usable from version 7.2 on.
pub const ALLOCATION_TYPE_UNCACHED: u32 = 0x4000_0000;
/// `hipMemLocationTypeDevice`.
pub const LOCATION_TYPE_DEVICE: u32 = 1;
/// `hipMemAccessFlagsProtReadWrite`.
pub const ACCESS_READ_WRITE: u32 = 3;
/// `hipMemAllocationGranularityRecommended`.
pub const GRANULARITY_RECOMMENDED: u32 = 1;
/// `hipMemRangeHandleTypeDmaBufFd`.
pub const RANGE_HANDLE_DMA_BUF: u32 = 1;
/// `hipExternalMemoryHandleTypeOpaqueFd`.
pub const EXTERNAL_MEMORY_OPAQUE_FD: u32 = 1;
/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`.
pub const LAUNCH_PARAMETER_BUFFER_POINTER: usize = 1;
/// `HIP_LAUNCH_PARAM_BUFFER_SIZE`.
pub const LAUNCH_PARAMETER_BUFFER_SIZE: usize = 2;
/// `HIP_LAUNCH_PARAM_END`.
pub const LAUNCH_PARAMETER_END: usize = 3;
/// `HSA_AMD_LINK_INFO_TYPE_XGMI` (`hsa_ext_amd.h`), a result of `hipExtGetLinkTypeAndHopCount`.
pub const LINK_XGMI: u32 = 4;

/// Error codes (`hipError_t`) that this backend handles.
pub mod result {
    #![allow(missing_docs, reason = "named as in hip_runtime_api.h")]
    pub const SUCCESS: u32 = 0;
    pub const INVALID_VALUE: u32 = 1;
    pub const OUT_OF_MEMORY: u32 = 2;
    pub const DEINITIALIZED: u32 = 4;
    pub const INVALID_DEVICE_POINTER: u32 = 17;
    pub const INSUFFICIENT_DRIVER: u32 = 35;
    pub const NO_DEVICE: u32 = 100;
    pub const INVALID_DEVICE: u32 = 101;
    pub const INVALID_IMAGE: u32 = 200;
    pub const INVALID_CONTEXT: u32 = 201;
    pub const MAP_FAILED: u32 = 205;
    pub const NO_BINARY_FOR_GPU: u32 = 209;
    pub const ECC_NOT_CORRECTABLE: u32 = 214;
    pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    pub const NOT_READY: u32 = 600;
    pub const ILLEGAL_ADDRESS: u32 = 700;
    pub const LAUNCH_TIMEOUT: u32 = 702;
    pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub const CONTEXT_IS_DESTROYED: u32 = 709;
    pub const ASSERT: u32 = 710;
    pub const LAUNCH_FAILURE: u32 = 719;
    pub const NOT_SUPPORTED: u32 = 801;
    /// The first and the last code of calls that a capture forbids or that ended a capture.
    pub const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
    pub const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;
}
