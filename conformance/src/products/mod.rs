//! Products of matrices whose `A` is gathered: every way to do them, compared with the product in f64.
//!
//! `case` says what a case is and `plan` which are run; `check` carries one out.

mod case;
mod check;
mod plan;

pub use case::{ProductCase, ProductWay};
pub(super) use check::{Product, check};
pub use plan::{full, sample};
