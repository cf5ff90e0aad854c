//! Bootstrap: how the ranks of a job find each other and exchange data before they share memory.
//!
//! A [`LaunchEnvironment`] describes this rank. [`Bootstrap::connect`] meets the others and provides a
//! [`Store`], through which all ranks exchange small payloads and file descriptors, and the [`PeerInformation`]
//! of each.
//!
//! Rank 0 runs the store in a thread. By default it listens on an abstract Unix socket whose name is derived
//! from secret, job, user and generation: there is no port to agree on and no file to leave behind, and the kernel
//! tells each end the other's user. A rank shows the job's key before any message is read. With the feature
//! `tcp`, the rendezvous may be `host:port`: a rank that connects by TCP proves that it knows the secret, and is
//! redirected, over the connection that the secret now protects, to the Unix socket, the only transport for file
//! descriptors.
//!
//! Ranks that may be on several nodes stay on the connection on which they came, and those of each node open a store of
//! their own on a Unix socket for their descriptors. A host that stops closes no connection, so each rank has a pulse
//! there.

mod beating;
mod client;
mod codec;
mod connect;
mod connection;
mod coordinator;
mod deadline;
mod descriptors;
mod environment;
mod failure;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handshake;
mod key;
mod meeting;
mod node;
mod peer;
mod process;
mod pulse;
mod reply;
mod request;
#[cfg(feature = "tcp")]
mod reunion;
mod secret;
mod secret_file;
mod server;
mod siphash;
mod store;
mod strangers;
mod stream;

pub use crate::base::bootstrap_error::BootstrapError;
pub(crate) use beating::Beating;
pub use connect::Bootstrap;
pub use environment::LaunchEnvironment;
pub use peer::PeerInformation;
pub use process::ProcessIdentity;
#[cfg(feature = "tcp")]
pub(crate) use reunion::{Agreed, Survey};
pub use secret::Secret;
pub use store::{Contribution, Store};

#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod tests;
