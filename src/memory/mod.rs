//! Symmetric memory: how it is made and proved, host copies, the signal pad, multicast.

pub(crate) mod exchange_table;
pub(crate) mod kinds;
pub(crate) mod multicast;
pub(crate) mod pad;
pub(crate) mod sharing;
pub(crate) mod staging;
