//! What the benchmarks of operations with a GEMM share.
//!
//! `element` has the element types, `data` generates matrices, and `samples` compares sampled elements with expected
//! ones. `shapes` checks shapes. `library` is the GEMM by cuBLASLt or hipBLASLt alone, `nccl` opens NCCL or RCCL. `turn` has what a contender does in the rounds, and its times.

pub(crate) mod data;
pub(crate) mod element;
pub(crate) mod library;
pub(crate) mod nccl;
pub(crate) mod samples;
pub(crate) mod shapes;
pub(crate) mod turn;
