//! The rules of the fake driver, as tests. Each test runs in its own process because the driver's state exists once per
//! process.

mod binding;
mod collectives;
mod kernels;
mod memory;
mod multicast;
mod multicast_kernels;
mod multicast_sharing;
mod multicast_support;
mod refusals;
mod sharing;
mod streams;
mod support;
