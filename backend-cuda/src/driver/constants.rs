//! Constants of the driver API, by value.
//!
//! cudarc's enumerations follow the toolkit that the user's build selects, and older toolkits lack newer names.
//! The values themselves never change (`cuda.h`). A test compares those that every version has.

/// Attributes of a device (`CUdevice_attribute`).
pub mod device_attribute {
    #![allow(missing_docs, reason = "named as in cuda.h")]
    pub const MULTIPROCESSOR_COUNT: u32 = 16;
    pub const ASYNC_ENGINE_COUNT: u32 = 40;
    pub const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
    pub const COMPUTE_CAPABILITY_MINOR: u32 = 76;
    /// Whether version 1 of the stream memory operations works, which a module option of the driver controls.
    pub const CAN_USE_STREAM_MEM_OPS_V1: u32 = 92;
    /// Whether stream waits support NOR: set exactly if version 2 of the stream memory operations works.
    pub const CAN_USE_STREAM_WAIT_VALUE_NOR: u32 = 123;
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: u32 = 97;
    pub const VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED: u32 = 102;
    pub const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: u32 = 103;
    pub const MULTICAST_SUPPORTED: u32 = 132;
}

/// Attributes of a pointer (`CUpointer_attribute`).
pub mod pointer_attribute {
    #![allow(missing_docs, reason = "named as in cuda.h")]
    pub const MEMORY_TYPE: u32 = 2;
    pub const IS_MANAGED: u32 = 8;
    pub const DEVICE_ORDINAL: u32 = 9;
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;
    pub const MEMPOOL_HANDLE: u32 = 17;
}

/// Parameters of a tensor map (`CUtensorMapDataType`, `…Interleave`, `…Swizzle`, `…L2promotion`, `…FloatOOBfill`).
pub mod tensor_map {
    #![allow(missing_docs, reason = "named as in cuda.h")]
    pub const DATA_TYPE_FLOAT16: u32 = 6;
    pub const DATA_TYPE_BFLOAT16: u32 = 9;
    pub const INTERLEAVE_NONE: u32 = 0;
    pub const SWIZZLE_128B: u32 = 3;
    pub const L2_PROMOTION_128B: u32 = 2;
    pub const L2_PROMOTION_256B: u32 = 3;
    /// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: elements out of bounds read as zero.
    pub const OUT_OF_BOUNDS_ZERO: u32 = 0;
}

/// `CU_MEMORYTYPE_DEVICE`.
pub const MEMORY_TYPE_DEVICE: u32 = 2;
/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
pub const FUNCTION_MAX_THREADS_PER_BLOCK: u32 = 0;
/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`.
pub const FUNCTION_STATIC_SHARED_BYTES: u32 = 1;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const FUNCTION_MAX_DYNAMIC_SHARED_BYTES: u32 = 8;
/// `CU_STREAM_NON_BLOCKING`: no ordering with the null stream.
pub const STREAM_NON_BLOCKING: u32 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub const CAPTURE_MODE_RELAXED: u32 = 2;
/// `CU_STREAM_WAIT_VALUE_GEQ`: `(int32_t)(*address - value) >= 0`, so it wraps.
pub const WAIT_VALUE_GEQ: u32 = 0;
/// `CU_STREAM_WRITE_VALUE_DEFAULT`: earlier work is visible to the system before the write.
pub const WRITE_VALUE_DEFAULT: u32 = 0;
/// `CU_EVENT_DEFAULT`: records the time; host waits spin.
pub const EVENT_DEFAULT: u32 = 0;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`, the same bits as `CU_MEMHOSTREGISTER_*`: all
/// contexts of the process can address the memory.
pub const HOST_PORTABLE_AND_MAPPED: u32 = 1 | 2;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
pub const IPC_LAZY_ENABLE_PEER_ACCESS: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub const ALLOCATION_TYPE_PINNED: u32 = 1;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
pub const LAUNCH_BESIDE_PREDECESSOR: u32 = 6;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
pub const LAUNCH_CLUSTERS: u32 = 4;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_TYPE_DEVICE: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const ACCESS_READ_WRITE: u32 = 3;
/// `CU_MULTICAST_GRANULARITY_MINIMUM`.
pub const GRANULARITY_MINIMUM: u32 = 0;
/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`, and `CU_MULTICAST_GRANULARITY_RECOMMENDED`.
pub const GRANULARITY_RECOMMENDED: u32 = 1;
/// `CU_JIT_ERROR_LOG_BUFFER`.
pub const JIT_ERROR_LOG_BUFFER: u32 = 5;
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
pub const JIT_ERROR_LOG_BUFFER_BYTES: u32 = 6;
/// `CU_LAUNCH_PARAM_END`.
pub const LAUNCH_PARAMETER_END: usize = 0;
/// `CU_LAUNCH_PARAM_BUFFER_POINTER`.
pub const LAUNCH_PARAMETER_BUFFER_POINTER: usize = 1;
/// `CU_LAUNCH_PARAM_BUFFER_SIZE`.
pub const LAUNCH_PARAMETER_BUFFER_SIZE: usize = 2;

/// Result codes (`CUresult`) that this backend distinguishes.
pub mod result {
    #![allow(missing_docs, reason = "named as in cuda.h")]
    pub const SUCCESS: u32 = 0;
    pub const INVALID_VALUE: u32 = 1;
    pub const OUT_OF_MEMORY: u32 = 2;
    pub const DEINITIALIZED: u32 = 4;
    pub const STUB_LIBRARY: u32 = 34;
    pub const NO_DEVICE: u32 = 100;
    pub const INVALID_DEVICE: u32 = 101;
    pub const NO_BINARY_FOR_GPU: u32 = 209;
    pub const ECC_UNCORRECTABLE: u32 = 214;
    pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    pub const INVALID_PTX: u32 = 218;
    pub const NVLINK_UNCORRECTABLE: u32 = 220;
    pub const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub const ILLEGAL_STATE: u32 = 401;
    pub const NOT_READY: u32 = 600;
    pub const ILLEGAL_ADDRESS: u32 = 700;
    pub const LAUNCH_TIMEOUT: u32 = 702;
    pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub const CONTEXT_IS_DESTROYED: u32 = 709;
    pub const ASSERT: u32 = 710;
    pub const HARDWARE_STACK_ERROR: u32 = 714;
    pub const ILLEGAL_INSTRUCTION: u32 = 715;
    pub const MISALIGNED_ADDRESS: u32 = 716;
    pub const INVALID_ADDRESS_SPACE: u32 = 717;
    pub const INVALID_PC: u32 = 718;
    pub const LAUNCH_FAILED: u32 = 719;
    pub const NOT_PERMITTED: u32 = 800;
    pub const NOT_SUPPORTED: u32 = 801;
    pub const SYSTEM_NOT_READY: u32 = 802;
    pub const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    pub const COMPAT_NOT_SUPPORTED_ON_DEVICE: u32 = 804;
    /// The first and the last code of calls that a capture forbids or that ended a capture.
    pub const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
    pub const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;
    pub const UNKNOWN: u32 = 999;
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    #[test]
    fn the_numbers_are_those_of_the_binding() {
        use sys::CUdevice_attribute_enum as D;
        use sys::CUpointer_attribute_enum as P;
        use sys::cudaError_enum as E;
        let pairs = [
            (
                device_attribute::MULTIPROCESSOR_COUNT,
                D::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as u32,
            ),
            (
                device_attribute::ASYNC_ENGINE_COUNT,
                D::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT as u32,
            ),
            (
                device_attribute::COMPUTE_CAPABILITY_MAJOR,
                D::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as u32,
            ),
            (
                device_attribute::COMPUTE_CAPABILITY_MINOR,
                D::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as u32,
            ),
            (
                device_attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                D::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as u32,
            ),
            (
                device_attribute::VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED,
                D::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED as u32,
            ),
            (
                device_attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                D::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED as u32,
            ),
            (
                pointer_attribute::MEMORY_TYPE,
                P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32,
            ),
            (
                pointer_attribute::IS_MANAGED,
                P::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32,
            ),
            (
                pointer_attribute::DEVICE_ORDINAL,
                P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32,
            ),
            (
                pointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE,
                P::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE as u32,
            ),
            (
                pointer_attribute::MEMPOOL_HANDLE,
                P::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as u32,
            ),
            (
                CAPTURE_MODE_RELAXED,
                sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as u32,
            ),
            (
                STREAM_NON_BLOCKING,
                sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32,
            ),
            (
                JIT_ERROR_LOG_BUFFER,
                sys::CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER as u32,
            ),
            (
                JIT_ERROR_LOG_BUFFER_BYTES,
                sys::CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32,
            ),
            (result::OUT_OF_MEMORY, E::CUDA_ERROR_OUT_OF_MEMORY as u32),
            (result::STUB_LIBRARY, E::CUDA_ERROR_STUB_LIBRARY as u32),
            (result::ILLEGAL_STATE, E::CUDA_ERROR_ILLEGAL_STATE as u32),
            (
                result::SYSTEM_NOT_READY,
                E::CUDA_ERROR_SYSTEM_NOT_READY as u32,
            ),
            (result::NOT_READY, E::CUDA_ERROR_NOT_READY as u32),
            (
                result::PEER_ACCESS_ALREADY_ENABLED,
                E::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32,
            ),
            (
                result::SYSTEM_DRIVER_MISMATCH,
                E::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as u32,
            ),
            (result::LAUNCH_FAILED, E::CUDA_ERROR_LAUNCH_FAILED as u32),
            (
                result::STREAM_CAPTURE_UNSUPPORTED,
                E::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as u32,
            ),
            (
                result::STREAM_CAPTURE_WRONG_THREAD,
                E::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as u32,
            ),
            (
                result::UNSUPPORTED_PTX_VERSION,
                E::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as u32,
            ),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs);
        }
    }
}
