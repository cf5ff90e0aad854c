//! What differs between the two libraries: the numbers in their headers, and their error codes.

use std::ffi::c_int;

/// The numbers of one library.
pub struct Numbers {
    pub prefix: &'static str,
    pub vendor: fake_library::Vendor,
    /// The version, as the library reports it.
    pub version: u32,
    pub compute_f32: c_int,
    pub f32: c_int,
    pub f16: c_int,
    pub bf16: c_int,
    pub f8_e4m3: c_int,
    pub plain: c_int,
    pub transposed: c_int,
    /// Attributes of an operation.
    pub transpose_first: c_int,
    pub transpose_second: c_int,
    pub epilogue: c_int,
    pub bias_pointer: c_int,
    pub bias_element: c_int,
    pub scale_of_first: c_int,
    pub epilogue_plain: u32,
    pub epilogue_bias: u32,
    /// Attributes of a preference.
    pub most_workspace: c_int,
    pub alignments: Option<[c_int; 4]>,
    /// The attribute for reduction schemes of split-K sums, and the bits of the schemes that add in f32.
    pub partial_sums: Option<(c_int, u32)>,
    /// 64-bit words of the struct that holds an algorithm.
    pub algorithm_words: usize,
    /// Error codes.
    pub failed: Code,
    pub invalid: Code,
    pub unsupported: Code,
}

/// An error status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

pub type Result<T = ()> = std::result::Result<T, Code>;

/// Numbers from `cublasLt.h`, `cublas_api.h` and `library_types.h`.
pub static CUBLAS: Numbers = Numbers {
    prefix: "cublasLt",
    vendor: fake_library::Vendor::Nvidia,
    version: 120_805,
    compute_f32: 68,
    f32: 0,
    f16: 2,
    bf16: 14,
    f8_e4m3: 28,
    plain: 0,
    transposed: 1,
    transpose_first: 3,
    transpose_second: 4,
    epilogue: 7,
    bias_pointer: 8,
    bias_element: 26,
    scale_of_first: 17,
    epilogue_plain: 1,
    epilogue_bias: 4,
    most_workspace: 1,
    alignments: Some([5, 6, 7, 8]),
    partial_sums: Some((3, 2)),
    algorithm_words: 8,
    failed: Code(14),
    invalid: Code(7),
    unsupported: Code(15),
};

/// Numbers from `hipblaslt.h`, `hipblas-common.h` and `library_types.h`.
pub static HIPBLAS: Numbers = Numbers {
    prefix: "hipblasLt",
    vendor: fake_library::Vendor::Amd,
    version: 100_000,
    compute_f32: 2,
    f32: 0,
    f16: 2,
    bf16: 14,
    f8_e4m3: 28,
    plain: 111,
    transposed: 112,
    transpose_first: 0,
    transpose_second: 1,
    epilogue: 2,
    bias_pointer: 3,
    bias_element: 4,
    scale_of_first: 5,
    epilogue_plain: 1,
    epilogue_bias: 4,
    most_workspace: 1,
    alignments: None,
    partial_sums: None,
    algorithm_words: 3,
    failed: Code(6),
    invalid: Code(3),
    unsupported: Code(7),
};
