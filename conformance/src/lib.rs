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

mod buffers;
mod case;
pub mod collectives;
mod context;
pub mod covering;
mod dtype;
mod engine;
mod findings;
mod floats;
mod length;
mod outcome;
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
mod transfer_case;
mod transfers;
mod world;

#[cfg(test)]
mod faults;

pub use case::Case;
pub use dtype::Dtype;
pub use engine::{Engine, MethodName};
pub use length::{Length, OFFSETS};
pub use outcome::Outcome;
pub use rank::{About, rank_main};
pub use report::{NamedRecord, Report, Totals, WorldReport};
pub use selftest::{RANK_ARGUMENT, SCHEMA, SelftestOptions, Share, Subject, selftest};
pub use session::{CASE_DEADLINE, Session, run};
pub use transfer_case::{Operation, Placement, Traffic, TransferCase};
pub use world::{Record, World, WorldError, WorldOptions};
