//! The shared parts of the fake GPU runtimes, for tests on machines without a GPU.
//!
//! Devices are shared memory files, streams are threads, and symmem's kernels are Rust functions ([`kernels`]).
//! Processes share memory through file descriptors and handles, as with a GPU. The report ([`report`]) lists what a
//! program did wrong and what it did not release. Each vendor's fake is its own crate, which defines the functions'
//! names ([`api!`]), the properties of its devices ([`devices::Machine`]), and how device code is read. The README
//! lists the switches.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

#[cfg(not(target_os = "linux"))]
compile_error!("the fake devices run on Linux");

pub mod allocations;
pub mod call;
mod callers;
pub mod capture;
pub mod contexts;
pub mod copies;
pub mod devices;
pub mod driver;
pub mod error;
pub mod events;
pub mod graphs;
mod handles;
pub mod inject;
pub mod ipc;
pub mod kernels;
pub mod launch;
mod ledger;
pub mod library;
mod memory;
pub mod modules;
pub mod multicast;
pub mod outstanding;
mod physical;
pub mod ranges;
pub mod report;
mod residency;
pub mod streams;
pub mod testing;
pub mod vmm;
mod work;
