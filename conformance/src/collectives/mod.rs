//! Collectives: every operation, by every algorithm that serves it, compared with its definition.
//!
//! `case` is what is checked, `call` what a call must give, `values` the data, `plan` which cases
//! are run, `enqueue` makes the calls, `lane` is one call with its memory, `check` runs a case and `soak` many at once, `multicast` says which
//! cases its kernels do.

mod call;
mod case;
mod check;
mod closeness;
mod enqueue;
mod lane;
mod multicast;
pub mod plan;
mod refusal_case;
pub(super) mod refusals;
pub(super) mod soak;
mod soak_case;
mod values;

#[cfg(test)]
mod faults;

pub(super) use call::Call;
pub(super) use check::{check, lanes};
pub(super) use enqueue::enqueue;
pub(super) use lane::{Lane, Site, sizes};

pub use case::{
    AlgorithmName, Collective, CollectiveCase, Members, Mode, Reduction, StreamOwner, Values, Way,
};
pub use multicast::MulticastKernels;
pub use refusal_case::RefusalCase;
pub use soak_case::SoakCase;
