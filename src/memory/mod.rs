//! Symmetric memory: allocation and proof, host copies, the signal pad, multicast.

pub(crate) mod exchange_table;
pub(crate) mod kinds;
pub(crate) mod multicast;
pub(crate) mod pad;
pub(crate) mod sharing;
pub(crate) mod staging;
