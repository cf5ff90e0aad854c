//! Hosts on one machine, for tests of worlds that span nodes.
//!
//! A host is a network namespace with an IPC and a UTS namespace, so that its processes meet those of other hosts only
//! over the wire: neither abstract sockets nor System V shared memory cross. The wire has an optional rate (tbf), delay
//! (a relay in this process) and loss (nftables), and each host's link can be cut.
//!
//! ```no_run
//! use two_hosts::{Hosts, HostsOptions};
//! let hosts = match Hosts::new(&HostsOptions::default()) {
//!     Ok(hosts) => hosts,
//!     Err(skip) => return skip.tell("a test"),
//! };
//! let mut child = hosts[1].command("ip").arg("address").spawn().unwrap();
//! # child.wait().unwrap();
//! ```
//!
//! The namespaces have no names. This process holds them by descriptors, so the kernel removes them, with the links
//! and queues in them, when the process ends in any way and the last process inside has ended.
//!
//! Needs `CAP_SYS_ADMIN` and iproute2: root, or a user namespace around the tests (`unshare -Urn cargo test …`).
//! Without them, or without the kernel's tbf or `numgen` where these are asked for, [`Hosts::new`] returns a [`Skip`]
//! with the reason.

mod counters;
mod host;
mod hosts;
mod left;
mod namespace;
mod options;
mod relay;
mod skip;

pub use counters::Counters;
pub use host::Host;
pub use hosts::{AGENT, Hosts, INTERFACE};
pub use left::references;
pub use options::HostsOptions;
pub use skip::Skip;
