//! Symmetric memory across the GPUs of a node: one-sided put and get, signals and collectives, the
//! vendor chosen at run time.
//!
//! ```no_run
//! # fn main() -> symmem::Result<()> {
//! let communicator = symmem::init()?; // rank and world size from the launcher, the best backend there is
//! let (rank, world) = (communicator.rank(), communicator.world_size());
//! let stream = communicator.stream()?;
//! let inbox = communicator.allocate::<f32>(&[1024])?;
//! let outbox = communicator.allocate::<f32>(&[1024])?;
//! outbox.write(&stream, 0, &[rank as f32; 1024])?;
//! stream.put_signal((rank + 1) % world, &inbox, &outbox, 0)?;
//! stream.wait_signal((rank + world - 1) % world, 0)?;
//! let mut received = [0.0; 1024];
//! inbox.read(&stream, 0, &mut received)?;
//! inbox.free()?;
//! outbox.free()?;
//! communicator.finalize()?;
//! # Ok(()) }
//! ```
//!
//! # What is where
//!
//! | | |
//! |---|---|
//! | joining | [`init`], [`Communicator::builder`]; [`Communicator`] has rank, world size and what ranks do together |
//! | memory | [`SymmetricBuffer`], parts of it as [`Slice`], memory of the caller's by [`Communicator::register`] |
//! | one-sided | [`Queue::put`], [`Queue::get`], [`Queue::put_signal`], [`Queue::wait_signal`] |
//! | words | [`Queue::signal_add`], [`Queue::wait_word`], [`Queue::atomic_fetch_add`] and their like |
//! | collectives | [`Queue::all_reduce`], [`Queue::all_gather`], [`Queue::reduce_scatter`], [`Queue::all_to_all`], [`Queue::broadcast`], [`Queue::reduce`], [`Queue::gather`], [`Queue::scatter`], [`Queue::exchange`]; [`Queue::with`] takes [`CollectiveOptions`] (or [`TransferOptions`]), [`Communicator::split`] makes groups |
//! | products | [`Communicator::all_gather_gemm`] makes a product of matrices that gathers one of them, [`Queue::all_gather_gemm`] enqueues it |
//! | recording | [`Stream::capture`], of all of these, and [`Queue::launch_graph`] |
//! | kernels of one's own | [`SymmetricBuffer::handle`], [`Communicator::load_module`], [`Queue::launch`] |
//! | the vendor's library | [`Communicator::open_vendor`], [`Provider`] |
//! | failures | [`Error`], [`Communicator::check`], [`Communicator::abort`], [`Communicator::rebuild`] |
//!
//! ```no_run
//! # use symmem::{ReduceOp, Result, Stream, SymmetricBuffer};
//! # fn step(stream: &mut Stream, x: &SymmetricBuffer<f32>) -> Result<()> {
//! stream.all_reduce(x, x, ReduceOp::Sum)?; // in place; enqueued
//! let graph = stream.capture(|queue| queue.all_reduce(x, x, ReduceOp::Sum))?;
//! stream.launch_graph(&graph)?; // any number of times
//! # Ok(()) }
//! ```
//!
//! Every wait is bounded; a peer that dies is an error within a second. The contract and the policy
//! are in [`symmem_core`]; this crate selects a backend ([`backends`]).

pub mod backends;
mod base;
pub mod bootstrap;
mod buffer;
mod builder;
mod collectives;
mod gemm;
mod group;
mod health;
mod memory;
mod rank;
mod stream;
pub mod tuning;
mod world;

pub use base::element::{Element, F8E4M3, F8E5M2};
pub use base::env::BadVariable;
pub use base::error::{Error, Result};
pub use base::error_kind::ErrorKind;
pub use base::gemm_names::{GemmAlgorithm, GemmTransport};
pub use base::gemm_row::GemmRow;
pub use base::gemm_shape::GemmShape;
pub use base::limits::{BARRIER_CHANNELS, CHANNELS, COLLECTIVE_CHANNELS};
pub use base::names::{
    Algorithm, CollectiveOperation, Condition, Direction, ElementType, MatrixOrder, Method,
    MulticastSupport, ReduceOp, Sharding, ShareKind, SignalPlacement,
};
pub use base::planner::{TransferOptions, plan};
pub use base::reducible::Reducible;
pub use base::variables::{VARIABLES, Variable};
pub use bootstrap::{BootstrapError, LaunchEnvironment};
pub use buffer::slice::Slice;
pub use buffer::symmetric::SymmetricBuffer;
pub use buffer::views::{MulticastView, RawView};
pub use builder::{Builder, init};
pub use collectives::api::Collectives;
pub use collectives::exchange::Exchange;
pub use collectives::explain::multicast_reduces;
pub use collectives::options::CollectiveOptions;
pub use collectives::select::CollectiveCall;
pub use gemm::matrix::{GemmElement, Matrix, Operands};
pub use gemm::operation::AllGatherGemm;
pub use gemm::options::GemmOptions;
pub use gemm::plan::{On, Part, Step};
pub use group::choice::Choice;
pub use group::nccl::VendorLibrary;
pub use group::provider::Provider;
pub use memory::multicast::object::MulticastStatus;
pub use memory::multicast::setup::multicast_bytes;
pub use stream::call_options::CallOptions;
pub use stream::graph::Graph;
pub use stream::module::{Function, Module};
pub use stream::queue::{Queue, Stream};
pub use stream::transfers::Transfers;
pub use stream::words::Word;
pub use symmem_core::backend::abi::{DeviceAddress, Geometry, Handle, TransferRow};
pub use symmem_core::{backend, host};
pub use world::communicator::{Communicator, Leaks};
pub use world::configuration::{BackendSource, Configuration, DeviceChoice};
pub use world::group::Group;
pub use world::peer::Peer;

/// The examples of the README and of the book are compiled, and run, with the documentation's tests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/src/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../docs/src/tasks.md")]
    struct Tasks;
    #[doc = include_str!("../docs/src/kernels.md")]
    struct Kernels;
    #[doc = include_str!("../docs/src/launching.md")]
    struct Launching;
    #[doc = include_str!("../docs/src/failures.md")]
    struct Failures;
}
