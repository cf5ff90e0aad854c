//! The contract, the policy and the host backend of symmem. Knows no vendor.
//!
//! [`backend`] states what a backend gives; everything else here is policy written once: meeting the
//! other ranks ([`bootstrap`]), the [`Communicator`] and its [`SymmetricBuffer`]s, [`Stream`]s and
//! [`Graph`]s, deadlines, abort and the watcher. Collectives are methods of [`Stream`], with
//! [`CollectiveOptions`]; which algorithm does them, and with which grid, is chosen here from rows that
//! the backend gives ([`Communicator::explain`]). Use it through the `symmem` crate, which selects a
//! backend.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("symmem runs on Linux, on x86-64 and aarch64; no other platform is supported");

pub mod abandon;
pub mod backend;
pub mod bootstrap;
mod buffer;
mod collectives;
mod communicator;
mod control;
mod element;
pub mod epoch;
mod error;
mod gemm;
mod graph;
mod handle;
mod health;
mod heartbeat;
pub mod host;
mod module;
mod planner;
mod record;
mod shared_file;
mod stream;
mod words;

pub use buffer::{BufferRange, MulticastView, RawView, SymmetricBuffer};
pub use collectives::{
    COLLECTIVE_CHANNELS, Choice, CollectiveCall, CollectiveOptions, Exchange, Group, Provider,
    Reducible, VendorLibrary, multicast_reduces,
};
pub use communicator::{
    BARRIER_CHANNELS, BackendSource, CHANNELS, Communicator, Configuration, DeviceChoice, Leaks,
    MulticastStatus, Peer, multicast_bytes,
};
pub use element::{Element, F8E4M3, F8E5M2};
pub use error::{Error, Result};
pub use gemm::{
    AllGatherGemm, GemmAlgorithm, GemmElement, GemmOptions, GemmRow, GemmShape, GemmTransport,
    Matrix, On, Operands, Part, Step,
};
pub use graph::Graph;
pub use module::{Function, Module};
pub use planner::{TransferOptions, plan};
pub use stream::Stream;
pub use words::Word;
