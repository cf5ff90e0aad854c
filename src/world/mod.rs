//! A world of ranks: bringing it up, the communicator, rebuilding it among survivors.

pub(crate) mod communicator;
pub(crate) mod opening;
pub(crate) mod rebuild;
pub(crate) mod setup;
