//! Streams: transfers, signals, words, graphs and kernels of the user.

pub(crate) mod graph;
pub(crate) mod module;
pub(crate) mod transfers;
pub(crate) mod words;
