//! The words that ranks raise and wait for, and sleeping on them.
//!
//! A signal word is followed by a 32-bit count of sleepers; signal words are [`SIGNAL_STRIDE`] apart, so there is
//! room. A giver makes a system call only if that count is not zero.

use crate::backend::abi::{DeviceAddress, SIGNAL_STRIDE};
use crate::epoch;
use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Longest sleep. Setting the abort word wakes no sleeper, so sleepers must look at it themselves.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// A word that one side raises and another waits on, and the count of sleepers beside it.
#[repr(C)]
pub(crate) struct SignalWord {
    /// The epoch reached.
    pub(crate) value: AtomicU32,
    /// Number of waiters that sleep or are about to.
    pub(crate) sleepers: AtomicU32,
}

const _: () = assert!(size_of::<SignalWord>() as u64 <= SIGNAL_STRIDE);

impl SignalWord {
    /// Returns the signal word at `address`.
    ///
    /// # Safety
    /// The 8 bytes at `address` are mapped, 4-byte aligned, and accessed atomically only, for `'a`.
    #[inline]
    pub(crate) unsafe fn at<'a>(address: DeviceAddress) -> &'a Self {
        // SAFETY: the bytes are mapped and aligned, as this function requires. Both fields are atomics, which other
        // threads and processes may change behind a shared reference.
        unsafe { &*ptr::with_exposed_provenance(address.0 as usize) }
    }

    /// Writes the word and wakes its sleepers.
    #[inline]
    pub(crate) fn publish(&self, value: u32) {
        if epoch::publish(&self.value, &self.sleepers, value) {
            self.wake();
        }
    }

    /// Writes the word unless it is already further, and wakes its sleepers.
    #[inline]
    pub(crate) fn raise(&self, value: u32) {
        if epoch::raise(&self.value, &self.sleepers, value) {
            self.wake();
        }
    }

    #[cold]
    pub(crate) fn wake(&self) {
        wake(&self.value);
    }
}

/// Wakes all sleepers on a word.
#[cold]
pub(crate) fn wake(word: &AtomicU32) {
    futex(word, FUTEX_WAKE, u32::MAX >> 1, None);
}

/// Returns the plain 32-bit word at `address`: an epoch counter or an abort word.
///
/// # Safety
/// The 4 bytes at `address` are mapped, aligned, and accessed atomically only, for `'a`.
#[inline]
pub(crate) unsafe fn word_at<'a>(address: DeviceAddress) -> &'a AtomicU32 {
    // SAFETY: the bytes are mapped, aligned and accessed atomically only, as this function requires.
    unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(address.0 as usize)) }
}

/// Returns the plain 64-bit word at `address`.
///
/// # Safety
/// The 8 bytes at `address` are mapped, aligned, and accessed atomically only, for `'a`.
#[inline]
pub(crate) unsafe fn long_at<'a>(address: DeviceAddress) -> &'a AtomicU64 {
    // SAFETY: the bytes are mapped, aligned and accessed atomically only, as this function requires.
    unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(address.0 as usize)) }
}

/// A sleep on a word, announced in the word's count of sleepers if it has one.
///
/// It holds an address and not a reference: while one thread sleeps, another may complete the wait, and the memory
/// may be unmapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// The word.
    pub(crate) word: DeviceAddress,
    /// The word's value at the last look.
    pub(crate) seen: u32,
    /// Longest duration.
    pub(crate) limit: Duration,
    /// Whether a count of sleepers follows the word.
    pub(crate) counted: bool,
}

/// What a caller of [`HostBackend::stream_pause`](crate::host::HostBackend::stream_pause) may do in place of a sleep on a word.
pub trait Sleeper {
    /// Returns whether a sleep of this sleeper ends early when the word changes.
    fn watches(&self, word: DeviceAddress) -> bool;
    /// Sleeps until the word is no longer `seen`, at most for `longest`. May return early.
    fn sleep(&self, word: DeviceAddress, seen: u32, longest: Duration);
    /// Called before the caller sleeps on a word that this sleeper does not watch.
    fn leave(&self);
}

impl Sleep {
    /// Sleeps until the word changes, a thread wakes it, or the limit has passed. May return early.
    pub(crate) fn sleep(self) {
        let limit = self.limit.min(LONGEST_SLEEP);
        let word = ptr::with_exposed_provenance(self.word.0 as usize);
        futex(word, FUTEX_WAIT, self.seen, Some(limit));
    }
}

const FUTEX_WAIT: c_int = 0;
const FUTEX_WAKE: c_int = 1;

#[cfg(target_arch = "x86_64")]
const SYS_FUTEX: c_long = 202;
#[cfg(target_arch = "aarch64")]
const SYS_FUTEX: c_long = 98;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    // Safe futex wrappers take the word by reference, which a sleeper here must not hold.
    fn syscall(number: c_long, ...) -> c_long;
}

/// Calls futex(2), without the private flag, because processes share the words.
///
/// The result is ignored: whatever ended a sleep, the caller looks at the word again.
fn futex(word: *const AtomicU32, operation: c_int, value: u32, limit: Option<Duration>) {
    if cfg!(miri) {
        // Miri takes this call with the types of libc only. A sleep may end early, and so a wake may do nothing.
        return std::thread::yield_now();
    }
    let limit = limit.map(|limit| Timespec {
        seconds: limit.as_secs() as i64,
        nanoseconds: i64::from(limit.subsec_nanos()),
    });
    let limit: *const Timespec = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the kernel reads the word itself, fails with EFAULT if it is not mapped, and writes nothing. `limit` is
    // null or points to a timespec that lives through the call.
    unsafe { syscall(SYS_FUTEX, word, operation, value, limit) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_sleeper_is_woken_by_the_giver_and_not_by_the_clock() {
        let word = SignalWord {
            value: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        };
        let address = DeviceAddress((&raw const word).expose_provenance() as u64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.sleepers.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(1));
                word.raise(1);
            });
            epoch::register_sleeper(&word.sleepers);
            while word.value.load(Ordering::Acquire) == 0 {
                let sleep = Sleep {
                    word: address,
                    seen: 0,
                    limit: LONGEST_SLEEP,
                    counted: true,
                };
                sleep.sleep();
            }
            epoch::unregister_sleeper(&word.sleepers);
        });
        assert_eq!(word.value.load(Ordering::Relaxed), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the word is not memory")]
    fn a_sleep_on_memory_that_is_gone_returns() {
        let sleep = Sleep {
            word: DeviceAddress(4096),
            seen: 0,
            limit: LONGEST_SLEEP,
            counted: true,
        };
        sleep.sleep();
    }
}
