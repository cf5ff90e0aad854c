//! How the ranks of a job find each other and exchange what they need before they share memory.
//!
//! A [`LaunchEnvironment`] says who this rank is; [`Bootstrap::connect`] meets the others and gives a
//! [`Store`], through which all ranks exchange small payloads and file descriptors, and the
//! [`PeerInformation`] of each.
//!
//! Rank 0 runs the store in a thread. By default it listens on an abstract Unix socket whose name
//! follows from job, user and generation: there is no port to agree on and no file to leave behind,
//! and both ends have the kernel's word for the other's user. A rank shows the job's key before a
//! message is read. With the feature `tcp`, `host:port` can be given instead; a rank that comes that
//! way proves that it knows the secret and is sent on to the Unix socket, since file descriptors travel
//! nowhere else.

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
mod handshake;
mod key;
mod meeting;
mod peer;
mod process;
mod reply;
mod request;
mod secret;
mod server;
mod siphash;
mod store;
mod stream;

pub use crate::base::bootstrap_error::BootstrapError;
pub use connect::Bootstrap;
pub use environment::LaunchEnvironment;
pub use peer::PeerInformation;
pub use process::ProcessIdentity;
pub use secret::Secret;
pub use store::{Contribution, Store};

#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod tests;
