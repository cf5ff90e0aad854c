//! What any fake GPU runtime is made of, for tests with no GPU.
//!
//! Devices are made of shared memory files, streams of threads, and symmem's kernels of Rust
//! ([`kernels`]); processes share memory through file descriptors and handles as they do with a GPU.
//! What a program gets wrong, and what it does not give back, is in the report ([`report`]). A vendor's
//! fake is a crate of its own: its functions' names ([`api!`]), what its devices look like
//! ([`devices::Machine`]) and how its device code is read. The README lists the switches.

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
pub mod report;
pub mod streams;
pub mod testing;
pub mod vmm;
mod work;
