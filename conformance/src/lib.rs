//! The conformance suite: what every backend must do, as data.
//!
//! A [`Case`] names an operation, a type, a length, offsets, an engine and where signals live;
//! [`run`] carries it out on a communicator together with the other ranks, and every rank gets the
//! same [`Outcome`]. [`World`] launches ranks as processes (or threads) once and feeds them cases;
//! [`plan`] says which: a [`plan::sample`] in which every two values of every two parameters meet, or
//! [`plan::full`]. [`selftest`] is all of it behind one call, for the installed command.
//!
//! A check compares every byte: destinations are poisoned before, hold guards on both sides of the
//! data, and sources must stay as they are. What a device cannot do is skipped, with the reason.

mod case;
pub mod collectives;
pub mod covering;
mod floats;
mod pattern;
pub mod plan;
pub mod products;
mod rank;
mod reference;
mod refusals;
mod registration;
mod report;
mod selftest;
mod session;
pub mod spawn;
mod transfers;
mod world;

#[cfg(test)]
mod faults;

pub use case::{
    Case, Dtype, Engine, Length, MethodName, OFFSETS, Operation, Outcome, Placement, Traffic,
    TransferCase,
};
pub use rank::{About, rank_main};
pub use report::{NamedRecord, Report, Totals, WorldReport};
pub use selftest::{RANK_ARGUMENT, SCHEMA, SelftestOptions, Share, Subject, selftest};
pub use session::{CASE_DEADLINE, Session, run};
pub use world::{Record, World, WorldError, WorldOptions};
