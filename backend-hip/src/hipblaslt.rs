//! hipBLASLt: how it is found, and its constants; `symmem_gpu::blaslt` has the calls.

use crate::runtime::{Runtime, open_library};
use std::sync::OnceLock;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::Status;
use symmem_gpu::blaslt::{BlasLtApi, Dialect};

/// File names of the library, newest first.
pub const SONAMES: [&str; 3] = ["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"];

/// Version 0.7 (ROCm 6.1); headers before it have other values for data types.
const VERSION_0_7: u32 = 700;

/// `hipblaslt.h`, `hipblas-common.h` and `library_types.h`, from version 0.7 on.
static DIALECT: Dialect = Dialect {
    name: "hipBLASLt",
    prefix: "hipblasLt",
    version_units: [100_000, 100],
    version_of_instance: true,
    least_version: VERSION_0_7,
    // HIPBLAS_COMPUTE_32F
    compute_f32: 2,
    // HIP_R_32F, HIP_R_16F, HIP_R_16BF; HIP_R_8F_E4M3, which gfx950 has, and gfx942 not
    f32: 0,
    f16: 2,
    bf16: 14,
    f8_e4m3: 28,
    // HIPBLAS_OP_T
    transposed: 112,
    // HIPBLASLT_MATMUL_DESC_TRANSA, _EPILOGUE, _BIAS_POINTER, _A_SCALE_POINTER
    transpose_first: 0,
    epilogue: 2,
    bias_pointer: 3,
    scale_of_first: 5,
    // HIPBLASLT_EPILOGUE_BIAS
    epilogue_bias: 4,
    // HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, whose default differs between versions
    bias_element: Some(4),
    // HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
    most_workspace: 1,
    alignments: None,
    partial_sums: None,
    // hipblasLtMatmulAlgo_t: 16 bytes, and the workspace size that it may use
    algorithm_words: 3,
    codes: &[
        (
            1,
            Status::CALL_FAILED,
            "HIPBLAS_STATUS_NOT_INITIALIZED: it cannot start on this device",
        ),
        (
            2,
            Status::OUT_OF_MEMORY,
            "HIPBLAS_STATUS_ALLOC_FAILED: it cannot allocate memory",
        ),
        (
            3,
            Status::INVALID_ARGUMENT,
            "HIPBLAS_STATUS_INVALID_VALUE: it rejects this GEMM",
        ),
        (
            4,
            Status::CALL_FAILED,
            "HIPBLAS_STATUS_MAPPING_ERROR: a matrix is not memory of this device",
        ),
        (
            5,
            Status::CALL_FAILED,
            "HIPBLAS_STATUS_EXECUTION_FAILED: one of its kernels could not be launched",
        ),
        (
            6,
            Status::CALL_FAILED,
            "HIPBLAS_STATUS_INTERNAL_ERROR: set HIPBLASLT_LOG_LEVEL=2 for details",
        ),
        (
            7,
            Status::UNSUPPORTED,
            "HIPBLAS_STATUS_NOT_SUPPORTED: it has no algorithm for this",
        ),
        (
            8,
            Status::UNSUPPORTED,
            "HIPBLAS_STATUS_ARCH_MISMATCH: it does not support this device",
        ),
        (
            9,
            Status::CALL_FAILED,
            "HIPBLAS_STATUS_HANDLE_IS_NULLPTR: its handle is null",
        ),
        (
            10,
            Status::INVALID_ARGUMENT,
            "HIPBLAS_STATUS_INVALID_ENUM: its enumerations differ; install another version",
        ),
        (
            11,
            Status::CALL_FAILED,
            "HIPBLAS_STATUS_UNKNOWN: set HIPBLASLT_LOG_LEVEL=2 for details",
        ),
    ],
};

static LIBRARY: OnceLock<CallResult<BlasLtApi>> = OnceLock::new();

/// Returns hipBLASLt; the first call opens it.
///
/// # Errors
/// `LIBRARY_MISSING`, or the failure that keeps the runtime from starting.
pub fn library() -> CallResult<&'static BlasLtApi> {
    let opened = LIBRARY.get_or_init(|| {
        // Without a runtime hipBLASLt is useless, so its failure is the one to report.
        Runtime::get()?;
        let library = open_library(&SONAMES, "install hipBLASLt (ROCm's package hipblaslt)")?;
        // SAFETY: libraries of these names are hipBLASLt.
        unsafe { BlasLtApi::new(&DIALECT, &library) }
    });
    opened.as_ref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use symmem_gpu::blaslt::RESULT_WORDS;

    /// `hipblasLtMatmulHeuristicResult_t` of 0.3 and newer, and the words that `symmem_gpu` reads of it.
    #[test]
    fn what_the_library_tells_of_a_way_lies_where_core_reads_it() {
        #[repr(C)]
        struct HeuristicResult {
            way: [u8; 16],
            way_workspace: usize,
            workspace: usize,
            state: u32,
            waves: f32,
            reserved: [i32; 4],
        }
        let (words, whole) = (
            DIALECT.algorithm_words,
            DIALECT.algorithm_words + RESULT_WORDS,
        );
        assert_eq!(size_of::<HeuristicResult>(), whole * size_of::<u64>());
        assert_eq!(
            offset_of!(HeuristicResult, workspace),
            words * size_of::<u64>()
        );
        assert_eq!(
            offset_of!(HeuristicResult, state),
            (words + 1) * size_of::<u64>()
        );
    }
}
