//! Collectives: every operation with every algorithm that supports it, compared with its definition.
//!
//! `case` defines a case, `call` its expected results, `values` the data, and `plan` generates cases.
//! `lane` is one call with its memory, and `enqueue` makes the call. `check` runs one case and `soak`
//! many at once, beside the kernel of `neighbor`. `multicast` tells which cases run multicast kernels.

mod call;
mod case;
mod check;
mod closeness;
mod enqueue;
mod lane;
mod multicast;
mod neighbor;
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
pub(super) use neighbor::Neighbor;

pub use case::{
    AlgorithmName, Collective, CollectiveCase, CollectiveVariant, Members, Mode, Reduction,
    StreamOwner, Values,
};
pub use multicast::MulticastKernels;
pub use refusal_case::RefusalCase;
pub use soak_case::{SoakCase, SoakLoad};
