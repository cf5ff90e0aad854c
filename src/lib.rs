//! Symmetric memory across the GPUs of one machine: one-sided put and get, signals, collectives and all-gather
//! + GEMM. The program chooses the backend (NVIDIA, AMD, host) at run time.
//!
//! ```no_run
//! # fn main() -> symmem::Result<()> {
//! let communicator = symmem::init()?; // rank and world size from the launcher; first backend that has a device
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
//! # Contents
//!
//! | | |
//! |---|---|
//! | joining | [`init`], [`Communicator::builder`]; [`Communicator`] has rank, world size and the collective calls of the host |
//! | memory | [`SymmetricBuffer`], parts of it as [`Slice`], the caller's own memory by [`Communicator::register`] |
//! | one-sided | [`Queue::put`], [`Queue::get`], [`Queue::put_signal`], [`Queue::wait_signal`] |
//! | words | [`Queue::signal_add`], [`Queue::wait_word`], [`Queue::atomic_fetch_add`] and similar |
//! | collectives | [`Queue::all_reduce`], [`Queue::all_gather`], [`Queue::reduce_scatter`], [`Queue::all_to_all`], [`Queue::broadcast`], [`Queue::reduce`], [`Queue::gather`], [`Queue::scatter`], [`Queue::exchange`]; [`Queue::with`] takes [`CollectiveOptions`] (or [`TransferOptions`]), [`Communicator::split`] makes groups |
//! | all-gather + GEMM | [`Communicator::all_gather_gemm`] prepares it, [`Queue::all_gather_gemm`] enqueues it |
//! | graphs | [`Stream::capture`] records any of the above, [`Queue::launch_graph`] replays it |
//! | your own kernels | [`SymmetricBuffer::handle`], [`Communicator::load_module`], [`Queue::launch`] |
//! | NCCL, RCCL | [`Communicator::open_nccl`], [`Provider`] |
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
//! Every wait has a deadline. A peer that dies is reported as an error within a second. [`symmem_core`] has the
//! traits between this crate and a backend; [`backends`] selects the backend.

pub mod backends;
mod base;
pub mod bootstrap;
mod buffer;
mod builder;
mod collectives;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gemm;
mod gemm_reduce;
mod group;
mod health;
mod memory;
mod network;
mod rank;
mod stream;
pub mod tuning;
mod world;

pub use base::cost;
pub use base::element::{Element, F8E4M3, F8E5M2};
pub use base::env::BadVariable;
pub use base::error::{Error, NoAnswer, Result};
pub use base::error_kind::ErrorKind;
pub use base::gemm_names::{GemmAlgorithm, GemmTile, GemmTransport};
pub use base::gemm_reduce_names::{GemmReduceAlgorithm, Reduction};
pub use base::gemm_reduce_row::GemmReduceRow;
pub use base::gemm_reduce_shape::GemmReduceShape;
pub use base::gemm_row::GemmRow;
pub use base::gemm_shape::GemmShape;
pub use base::limits::{BARRIER_CHANNELS, CHANNELS, COLLECTIVE_CHANNELS, MAX_WORLD};
pub use base::names::{
    Algorithm, CollectiveOperation, Condition, Direction, ElementType, MatrixOrder, Method,
    MulticastSupport, ReduceOp, Sharding, ShareKind, SignalPlacement,
};
pub use base::planner::{TransferOptions, plan};
pub use base::reducible::Reducible;
pub use base::variables::{VARIABLES, Variable};
pub use bootstrap::{BootstrapError, LaunchEnvironment};
pub use buffer::device_slice::DeviceSlice;
pub use buffer::local::LocalMemory;
pub use buffer::operand::Operand;
pub use buffer::segments::Segments;
pub use buffer::slice::Slice;
pub use buffer::symmetric::SymmetricBuffer;
pub use buffer::views::{MulticastView, RawView};
pub use builder::{Builder, init};
pub use collectives::api::Collectives;
pub use collectives::exchange::Exchange;
pub use collectives::explain::multicast_reduces;
pub use collectives::explanation::{
    BetweenNodes, Carrier, Explanation, NodeLeg, Stage, WithoutNccl,
};
pub use collectives::norm::{NormElement, RowNorm, Scales};
pub use collectives::options::CollectiveOptions;
pub use collectives::select::CollectiveCall;
pub use gemm::matrix::{GemmElement, Matrix, Operands};
pub use gemm::operation::AllGatherGemm;
pub use gemm::options::GemmOptions;
pub use gemm::plan::{GemmPart, GemmStep};
pub use gemm::streams::GemmStream;
pub use gemm_reduce::call::GemmReduceOperands;
pub use gemm_reduce::operation::GemmReduce;
pub use gemm_reduce::options::{GemmPartials, GemmReduceOptions};
pub use gemm_reduce::plan::{GemmBlock, GemmReduceStep};
pub use group::choice::Choice;
pub use group::dependents::Dependents;
pub use group::nccl::NcclLibrary;
pub use group::provider::Provider;
/// For [`with_element!`].
#[doc(hidden)]
pub use half;
pub use memory::multicast::object::MulticastStatus;
pub use memory::multicast::setup::multicast_bytes;
pub use network::leg::shape::LegShape;
pub use network::status::{NetworkStatus, network_library};
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
pub use world::start_memory::{MemoryPart, StartMemory};

/// Compiles the code blocks of the README and of the book as doc tests.
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
    #[doc = include_str!("../docs/src/concurrency.md")]
    struct Concurrency;
    #[doc = include_str!("../docs/src/launching.md")]
    struct Launching;
    #[doc = include_str!("../docs/src/nodes.md")]
    struct Nodes;
    #[doc = include_str!("../docs/src/failures.md")]
    struct Failures;
}
