//! GEMM on the host in plain loops, all-gather + GEMM, and GEMM + reduce-scatter and + all-reduce.

mod call;
pub(crate) mod gathered;
mod product;
pub(crate) mod reduced;
mod wait;

pub(crate) use call::{GemmCall, check, check_gathered, check_scale, refuse};
pub(crate) use reduced::check_reduced;
