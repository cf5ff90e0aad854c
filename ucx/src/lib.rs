//! UCX for symmem: one-sided transfers, atomics and active messages between processes of several machines.
//!
//! UCP, UCX's upper layer, is opened at run time (`libucp.so.0`, version 1.13 or later): a program that uses this crate
//! starts and works without it. From bottom to top: a [`Library`], a [`Context`] with its registered [`Memory`], a
//! [`Worker`], and an [`Endpoint`] for each peer. Processes exchange [`Worker::address`] and [`Memory::packed_key`]
//! themselves.
//!
//! Nothing here waits for a peer, and no thread runs in the background: operations complete in [`Worker::progress`].

mod atomics;
mod context;
mod endpoint;
mod envelope;
mod environment;
mod failure;
mod key;
mod library;
mod load_error;
mod lock;
mod memory;
mod messages;
mod operation;
mod table;
mod worker;

pub use context::{Config, Context};
pub use endpoint::{Atomic, Endpoint};
pub use failure::{Failure, Result};
pub use key::RemoteKey;
pub use library::{LIBRARY_VARIABLE, Library};
pub use load_error::LoadError;
pub use memory::Memory;
pub use messages::Handler;
pub use operation::{Operation, Poll};
pub use worker::{Waker, Worker};
