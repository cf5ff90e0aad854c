//! A fake `libcuda.so.1`, strict about order and lifetimes, for tests on machines without a GPU.
//!
//! It exports the driver's C functions over [`fake_device`], which does the work; this crate has only what is specific
//! to CUDA. The README lists the switches.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub use fake_device::{driver, error, inject, report};

use fake_device::error::{Code, Result};

pub mod allocations;
pub mod capture;
pub mod contexts;
pub mod copies;
pub mod devices;
pub mod events;
pub mod graphs;
mod image;
pub mod ipc;
pub mod launch;
pub mod modules;
pub mod multicast;
pub mod streams;
pub mod symbols;
pub mod tensor_maps;
pub mod vmm;

/// Checks that every call passes first.
fn admit(_symbol: &str) -> Result {
    if devices::is_stub() {
        Err(Code::STUB_LIBRARY)
    } else {
        Ok(())
    }
}
