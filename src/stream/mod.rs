//! Streams: transfers, signals, words, host copies, graphs and kernels of the user.

pub(crate) mod graph;
mod host_copies;
pub(crate) mod module;
pub(crate) mod queue;
mod signals;
mod transfers;
pub(crate) mod words;
