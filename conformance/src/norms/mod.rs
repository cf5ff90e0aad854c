//! All-reduces of rows with a residual and a norm, compared with sums in f32 and norms in f64.
//!
//! `case` and `refusal_case` define cases, `plan` generates them, `values` makes their data, `reference` computes what is
//! expected and within which bounds, `check` runs a case, `seen` compares, and `refusals` makes the calls that must fail.

mod case;
mod check;
mod plan;
mod reference;
mod refusal_case;
mod refusals;
mod seen;
mod values;

#[cfg(test)]
mod faults;

pub use case::{NormCase, NormName, NormOutput, ResidualUse};
pub(super) use check::{NormCheck, check};
pub use plan::{full, full_count, sample};
pub use refusal_case::NormRefusalCase;
pub(super) use refusals::check as check_refusals;
