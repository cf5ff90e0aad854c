//! One-sided operations to ranks of other nodes, over UCX.
//!
//! A communicator that spans nodes has one [`network::Network`]: a worker with an endpoint to every rank of another
//! node, and a thread that progresses it. Streams start commands, and wait for them, through words in pinned host
//! memory ([`slots`]). Each queue has a [`lane`], whose commands run in order; a graph has a [`section`] for each run of
//! commands between other work. A [`runner`] executes the commands of either over the [`wires`]; what arrives from
//! other nodes goes through the [`inbox`].
//!
//! A put's guarantee is the one inside a node: the elements have arrived once the stream has passed. So a command is
//! complete when the peer has acknowledged its message, or when a flush of the endpoint is complete.
//!
//! UCX reaches the memory of the host backend. GPU memory goes through [`pinned`] memory in pieces ([`staged`]), copied by
//! streams of the network's own ([`copies`]), and is delivered by [`staged_delivery`].
//!
//! Bottom up: `fault`, `versions`, `message`, `slots`, `mirrors`, `pinned`, `copies`; `delivery`, `staged_delivery`, `staging`;
//! `inbox`, `command`; `wires`; `barrier`, `staged`; `flight`; `runner`; `lane`, `section`; `opening`, `network`;
//! `progress`, `greeting`, `registration`.

mod barrier;
pub(crate) mod command;
mod copies;
pub(crate) mod delivery;
mod engine;
mod fault;
mod flight;
mod greeting;
mod inbox;
pub(crate) mod lane;
pub(crate) mod leg;
mod leg_name;
pub(crate) mod legs;
mod message;
mod mirrors;
#[allow(clippy::module_inception, reason = "the folder's main type")]
pub(crate) mod network;
mod opening;
mod pinned;
mod progress;
pub(crate) mod registration;
mod runner;
pub(crate) mod section;
pub(crate) mod slots;
mod staged;
mod staged_delivery;
mod staging;
pub(crate) mod status;
mod versions;
pub(crate) mod wire;
mod wires;

#[cfg(test)]
mod tests;
