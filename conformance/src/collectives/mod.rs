//! Collectives: every operation, by every algorithm that serves it, compared with its definition.
//!
//! `case` is what is checked, `call` what a call must give, `values` the data, `plan` which cases
//! are run, `lane` is one call with its memory, `check` runs a case and `soak` many at once.

mod call;
mod case;
mod check;
mod closeness;
mod lane;
pub mod plan;
pub(super) mod refusals;
pub(super) mod soak;
mod values;

#[cfg(test)]
mod faults;

pub(super) use check::{check, lanes};
pub(super) use lane::{Lane, Site, TypedLane, sizes};

pub use case::{
    AlgorithmName, Collective, CollectiveCase, Members, Mode, MulticastKernels, Reduction,
    StreamOwner, Values, Way,
};
pub use refusals::RefusalCase;
pub use soak::SoakCase;
