//! A fake `libamdhip64.so`, strict about order and lifetimes, for tests on machines without a GPU.
//!
//! It exports the runtime's C functions over [`fake_device`], which does the work; this crate has only what is specific
//! to HIP. It loads the real code objects (`code_object`). The README lists the switches.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub use fake_device::{driver, error, inject, report};

use fake_device::error::{Code, Result};
use fake_device::report::violation;

mod code_object;
mod compiler;
mod message_pack;
mod release;

pub mod devices;
pub mod errors;
pub mod graphs;
pub mod memory;
pub mod modules;
pub mod ranges;
pub mod sharing;
pub mod streams;
pub mod vmm;

/// Functions that work without a device.
const WITHOUT_DEVICE: &[&str] = &[
    "hipInit",
    "hipGetDeviceCount",
    "hipDriverGetVersion",
    "hipRuntimeGetVersion",
    "hipGetErrorName",
    "hipGetErrorString",
    "hipDrvGetErrorName",
    "hipDrvGetErrorString",
    "hipGetLastError",
    "hipPeekAtLastError",
];

/// Checks that every call passes first: the release must have the function. The runtime then initializes itself, with
/// device 0 for a thread that has chosen none.
fn admit(symbol: &str) -> Result {
    if let Some(since) = release::since(symbol).filter(|since| release::release() < *since) {
        violation(format!(
            "{symbol} was added in release {}.{}",
            since / 100,
            since % 100
        ));
        return Err(Code::NOT_SUPPORTED);
    }
    if WITHOUT_DEVICE.contains(&symbol) {
        return Ok(());
    }
    devices::ensure()
}
