//! The conformance suite: test cases, as data, that every backend must pass.
//!
//! A [`Case`] names an operation, an element type, a length, offsets, an engine and the placement of
//! signals. [`run`] executes a case on a communicator together with the other ranks; every rank gets
//! the same [`Outcome`]. [`World`] launches the ranks once, as processes or threads, and sends them
//! cases. [`plan`] generates the cases: [`plan::sample`] combines every two values of every two
//! parameters at least once; [`plan::full`] generates all. [`selftest`] does all of this in one call,
//! for the installed command.
//!
//! A check compares every byte. Destinations are filled with poison before the call and have guards
//! on both sides of the data; sources must not change. A case that the device does not support is
//! skipped, with the reason.

mod buffers;
mod case;
pub mod collectives;
mod context;
pub mod covering;
mod dtype;
mod engine;
mod findings;
mod floats;
mod gemm_float;
mod length;
pub mod norms;
mod outcome;
mod pattern;
pub mod plan;
pub mod products;
mod rank;
mod ranks_per_node;
pub mod reduced_products;
mod reference;
mod refusals;
mod region;
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
pub use rank::{WorldDescription, rank_main};
pub use ranks_per_node::RanksPerNode;
pub use report::{NamedRecord, Report, Totals, WorldReport};
pub use selftest::{RANK_ARGUMENT, SCHEMA, SelftestOptions, Share, Subject, selftest};
pub use session::{CASE_DEADLINE, Session, run};
pub use transfer_case::{Operation, Placement, Traffic, TransferCase};
pub use world::{Record, World, WorldError, WorldOptions};
