//! GEMMs that cuBLASLt or hipBLASLt has prepared.

use crate::backend::abi::RawGemm;
use crate::gemm::plan::GemmStream;

/// A GEMM that the library has prepared, for a number of rows and one stream.
#[derive(Clone, Copy)]
pub(super) struct Prepared {
    pub(super) rows: u64,
    pub(super) on: GemmStream,
    pub(super) raw: RawGemm,
    /// Index of the heuristic candidate to use.
    pub(super) candidate: u32,
    /// The stored candidate, if a tuning row has one; it is not timed.
    pub(super) stored: Option<u32>,
    /// Whether the candidate was stored or timed; otherwise it is the library's first.
    pub(super) known: bool,
}
