//! Streams: transfers, signals, words, host copies, graphs and the user's own kernels.

pub(crate) mod call_options;
pub(crate) mod graph;
mod host_copies;
pub(crate) mod module;
mod network;
pub(crate) mod queue;
mod remote;
mod signals;
pub(crate) mod transfers;
pub(crate) mod words;
