//! Multicast of a communicator; see `object`.

pub(crate) mod binding;
pub(crate) mod object;
pub(crate) mod setup;
pub(crate) mod steps;
pub(crate) mod wire;
