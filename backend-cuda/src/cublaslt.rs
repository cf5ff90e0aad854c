//! Finds cuBLASLt and defines its constants. [`symmem_gpu::blaslt`] calls it.

use crate::driver::Driver;
use crate::nccl::{elsewhere, toolkit};
use std::sync::OnceLock;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::Status;
use symmem_gpu::blaslt::{BlasLtApi, Dialect};
use symmem_gpu::library::{Library, python_packages};

/// The library's file names, newest first, each with the first CUDA version that the driver must support for it.
const SONAMES: [(&str, u32); 3] = [
    ("libcublasLt.so.13", 13_000),
    ("libcublasLt.so.12", 12_000),
    ("libcublasLt.so.11", 11_000),
];

/// Directories of the library within Python packages.
const IN_PACKAGES: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cublas/lib"];

/// Values of `cublasLt.h`, `cublas_api.h` and `library_types.h`, the same in versions 11 to 13.
static DIALECT: Dialect = Dialect {
    name: "cuBLASLt",
    prefix: "cublasLt",
    version_units: [10_000, 100],
    version_of_instance: false,
    least_version: 0,
    // CUBLAS_COMPUTE_32F
    compute_f32: 68,
    // CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF; CUDA_R_8F_E4M3, which is refused before 11.8
    f32: 0,
    f16: 2,
    bf16: 14,
    f8_e4m3: 28,
    // CUBLAS_OP_T
    transposed: 1,
    // CUBLASLT_MATMUL_DESC_TRANSA, _EPILOGUE, _BIAS_POINTER, _A_SCALE_POINTER
    transpose_first: 3,
    epilogue: 7,
    bias_pointer: 8,
    scale_of_first: 17,
    // CUBLASLT_EPILOGUE_BIAS
    epilogue_bias: 4,
    bias_element: None,
    // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, _MIN_ALIGNMENT_A_BYTES to _D_BYTES
    most_workspace: 1,
    alignments: Some([5, 6, 7, 8]),
    // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
    partial_sums: Some((3, 2)),
    // cublasLtMatmulAlgo_t
    algorithm_words: 8,
    codes: &[
        (
            1,
            Status::CALL_FAILED,
            "CUBLAS_STATUS_NOT_INITIALIZED: it cannot start on this device; the driver may be too old",
        ),
        (
            3,
            Status::OUT_OF_MEMORY,
            "CUBLAS_STATUS_ALLOC_FAILED: it cannot allocate memory; leave more memory free",
        ),
        (
            7,
            Status::INVALID_ARGUMENT,
            "CUBLAS_STATUS_INVALID_VALUE: it rejects this GEMM; set CUBLASLT_LOG_LEVEL=2 for details",
        ),
        (
            8,
            Status::UNSUPPORTED,
            "CUBLAS_STATUS_ARCH_MISMATCH: it does not support this device; install another version",
        ),
        (
            13,
            Status::CALL_FAILED,
            "CUBLAS_STATUS_EXECUTION_FAILED: one of its kernels could not be launched",
        ),
        (
            14,
            Status::CALL_FAILED,
            "CUBLAS_STATUS_INTERNAL_ERROR: set CUBLASLT_LOG_LEVEL=2 for details",
        ),
        (
            15,
            Status::UNSUPPORTED,
            "CUBLAS_STATUS_NOT_SUPPORTED: it has no algorithm for this; set CUBLASLT_LOG_LEVEL=2 for details",
        ),
    ],
};

static LIBRARY: OnceLock<CallResult<BlasLtApi>> = OnceLock::new();

/// Returns cuBLASLt; the first call opens it, and later calls return the same result.
///
/// # Errors
/// `LIBRARY_MISSING`, with the names tried and what to do.
pub fn library() -> CallResult<&'static BlasLtApi> {
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn open() -> CallResult<BlasLtApi> {
    // Without a driver cuBLASLt is of no use, and the driver's failure is the reason to report.
    let driver = Driver::get()?;
    let sonames = sonames(driver.version);
    let files = elsewhere(
        &sonames,
        toolkit().as_deref(),
        &python_packages(),
        &IN_PACKAGES,
    );
    let library = Library::open_first(
        &sonames,
        &files,
        "install cuBLAS for this driver (NVIDIA's packages, or pip's nvidia-cublas)",
    )?;
    // SAFETY: a library of these names is cuBLASLt.
    unsafe { BlasLtApi::new(&DIALECT, &library) }
}

/// Returns the names of the versions that a driver can run; the oldest if the driver is older than all.
fn sonames(driver: u32) -> Vec<&'static str> {
    let runs = SONAMES.iter().filter(|(_, version)| *version <= driver);
    let names: Vec<_> = runs.map(|(name, _)| *name).collect();
    match names.as_slice() {
        [] => vec![SONAMES[SONAMES.len() - 1].0],
        _ => names,
    }
}

/// Key of the library in `symmem info`.
pub const LABEL: &str = "libcublasLt.so";

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use symmem_gpu::blaslt::RESULT_WORDS;

    #[test]
    fn a_library_that_is_newer_than_the_driver_is_not_looked_for() {
        assert_eq!(sonames(13_000).len(), 3);
        assert_eq!(sonames(12_080)[0], "libcublasLt.so.12");
        assert_eq!(sonames(12_080).len(), 2);
        assert_eq!(sonames(10_020), ["libcublasLt.so.11"]);
    }

    /// `cublasLtMatmulHeuristicResult_t`, and the words of it that `symmem_gpu` reads.
    #[test]
    fn what_the_library_tells_of_a_way_lies_where_core_reads_it() {
        #[repr(C)]
        struct HeuristicResult {
            way: [u64; 8],
            workspace: usize,
            state: i32,
            waves: f32,
            reserved: [i32; 4],
        }
        let words = DIALECT.algorithm_words;
        assert_eq!(size_of::<HeuristicResult>(), 8 * (words + RESULT_WORDS));
        assert_eq!(offset_of!(HeuristicResult, workspace), 8 * words);
        assert_eq!(offset_of!(HeuristicResult, state), 8 * (words + 1));
    }
}
