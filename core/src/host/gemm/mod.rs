//! GEMM on the host in plain loops, and all-gather + GEMM.

mod call;
pub(crate) mod gathered;
mod product;

pub(crate) use call::{GemmCall, check, check_gathered, refuse};
