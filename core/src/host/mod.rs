//! The host backend: ranks are processes or threads of one machine, symmetric memory is memfds that each rank maps,
//! and the initiator's processor makes every transfer.
//!
//! It needs only Linux, so it is the default without a GPU and the reference for all other backends. A
//! [`DeviceAddress`] is a plain address. This backend counts the sleepers on a
//! signal word in the 32 bits after it; the allocator of signal words leaves these bits zero.

mod backend;
mod collectives;
mod copies;
#[doc(hidden)]
pub mod emulation;
mod gemm;
mod handle;
mod implementation;
mod machine;
mod progress;
mod segments;
mod signals;
mod stream;
mod words;

#[cfg(all(test, not(loom)))]
mod tests;

pub use backend::HostBackend;
pub use collectives::arithmetic::{Reduction, reduction};
pub use progress::Sleeper;

use crate::backend::CallResult;
use crate::backend::abi::{DeviceAddress, WordOperation};

/// Raises the signal word at `address` to `value`, unless it is already further, and wakes its sleepers: for a thread
/// that delivers a signal of another machine's rank.
///
/// # Safety
/// The 8 bytes at `address` are a signal word and its count of sleepers: mapped, aligned, and accessed atomically only.
pub unsafe fn raise_signal(address: DeviceAddress, value: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe { progress::SignalWord::at(address) }.raise(value);
}

/// Updates a word of host memory atomically, and stores the old value if the operation asks for it: for a thread that
/// executes an operation of another machine's rank.
///
/// # Errors
/// `INVALID_ARGUMENT` for a word that is not aligned, or an unknown update.
///
/// # Safety
/// The words are live, and accessed atomically only.
pub unsafe fn update_word(operation: &WordOperation) -> CallResult<()> {
    words::check_update(operation)?;
    // SAFETY: guaranteed by the caller; checked above.
    unsafe { words::update(operation) };
    Ok(())
}
