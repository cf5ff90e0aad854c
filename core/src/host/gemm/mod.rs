//! Products of matrices on the host: plain loops, and the kernel that multiplies what it gathers.

mod call;
pub(crate) mod gathered;
mod product;

pub(crate) use call::{Product, check, check_gathered, refuse};
