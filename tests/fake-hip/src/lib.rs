//! A fake `libamdhip64.so`, strict about order and lifetimes, for tests with no GPU.
//!
//! It exports the runtime's C functions over [`fake_device`], which does the work: here is what is
//! HIP's own. It takes the real code objects (`code_object`). The README lists the switches.

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
pub mod sharing;
pub mod streams;
pub mod vmm;

/// Functions that answer without a device.
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

/// What every call goes through first: the release has to have the function, and the runtime
/// initialises itself, with device 0 where a thread has chosen none.
fn admit(symbol: &str) -> Result {
    if let Some(since) = release::since(symbol).filter(|since| release::release() < *since) {
        violation(format!(
            "{symbol} came with release {}.{}",
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
