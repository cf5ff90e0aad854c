//! Calls that NCCL makes of its own exported functions.
//!
//! The loader finds this library before NCCL if a program preloads it or finds it under NCCL's name. NCCL's calls of its
//! own exported functions then come here, in 2.28 for example of `ncclCommGetAsyncError` and `ncclMemAlloc`. They must do
//! what NCCL expects of itself, so functions of this library pass them on unchanged.
//!
//! `RTLD_DEEPBIND` would keep these calls within NCCL, but it would bind NCCL's `malloc` and `free` to the C library's,
//! too. In a program with another allocator, NCCL would then free with one what `strdup` allocated with the other.
//! AddressSanitizer refuses that flag, and musl has none.

use std::cell::Cell;

thread_local! {
    /// Functions of this library that the thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The time in which a thread is in a function of this library.
pub struct Entered(());

/// Enters a function of this library.
pub fn enter() -> Entered {
    DEPTH.set(DEPTH.get() + 1);
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Returns whether NCCL made the call that the thread is in. No function of this library calls another that enters, so a
/// second entry comes from NCCL. Threads that NCCL starts have no mark; in 2.28, their calls concern communicators that are
/// being made or destroyed, which symmem does not serve then.
pub fn is_nccls() -> bool {
    DEPTH.get() > 1
}
