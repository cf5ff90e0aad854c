//! All-gather + GEMM: every algorithm and transport, compared with the GEMM in f64.
//!
//! `case` defines a case, `plan` generates cases, and `check` runs one.

mod case;
mod check;
mod plan;

pub use case::{GemmCase, GemmCaseElement, GemmVariant};
pub(super) use check::{GemmCheck, check};
pub use plan::{full, sample};
