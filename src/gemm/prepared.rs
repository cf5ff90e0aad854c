//! A product that cuBLASLt or hipBLASLt has prepared.

use crate::backend::abi::RawGemm;
use crate::gemm::plan::On;

/// A product that the library has prepared: of so many rows, on one stream.
#[derive(Clone, Copy)]
pub(super) struct Prepared {
    pub(super) rows: u64,
    pub(super) on: On,
    pub(super) raw: RawGemm,
    /// Which of the library's ways.
    pub(super) candidate: u32,
    /// The same where it was stored, and need not be found out.
    pub(super) stored: Option<u32>,
    /// Whether it was stored, or found out by timing; else it is the library's first guess.
    pub(super) known: bool,
}
