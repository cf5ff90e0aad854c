//! A world of ranks: its setup, the communicator, groups of ranks, and the rebuild among survivors.

pub(crate) mod communicator;
mod concurrency;
pub(crate) mod configuration;
pub(crate) mod group;
mod opening;
pub(crate) mod peer;
mod rebuild;
mod setup;
pub(crate) mod start_memory;
#[allow(
    clippy::module_inception,
    reason = "the folder is named after its central type"
)]
pub(crate) mod world;
