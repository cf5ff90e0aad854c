//! GEMM + reduce-scatter and GEMM + all-reduce: every algorithm and transport, compared with sums in f64.
//!
//! `case` and `refusal_case` define cases, `plan` generates them, `values` makes the matrices of all ranks, `reference` computes
//! what is expected and within which bounds, `memory` is a rank's memory of a case, `check` runs a case, `seen` compares, and
//! `refusals` makes the calls that must fail.

mod case;
mod check;
mod memory;
mod plan;
mod reference;
mod refusal_case;
mod refusals;
mod seen;
mod values;

#[cfg(test)]
mod faults;

pub use case::{GemmReduceCase, GemmReduceVariant, ReductionName};
pub(super) use check::{GemmReduceCheck, check};
pub use plan::{full, full_count, sample};
pub use refusal_case::GemmReduceRefusalCase;
pub(super) use refusals::check as check_refusals;
