//! What the fake driver promises, as tests. Each runs in a process of its own, since a driver's
//! state is one per process.

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
