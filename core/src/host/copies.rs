//! Copies of bytes by the initiator's processor.

use crate::backend::abi::{DeviceAddress, MAX_RANKS, RowsCopy};
use crate::host::progress::long_at;
use std::ptr;
use std::sync::atomic::Ordering;

/// Copies at the speed of the machine's `memcpy`.
///
/// Peers may store to either range at any time, which Rust cannot express at this speed. As in every one-sided
/// library, no reference points to the ranges, the copy is a call into the C library that the compiler cannot see
/// through, and bytes that a peer changes meanwhile arrive in any mixture. The initiator and the peer order their
/// accesses by signals, and then no byte changes.
///
/// # Safety
/// Both ranges are mapped and do not overlap.
pub(crate) unsafe fn copy(destination: DeviceAddress, source: DeviceAddress, bytes: u64) {
    if bytes == 0 {
        return;
    }
    let destination: *mut u8 = ptr::with_exposed_provenance_mut(destination.0 as usize);
    let source: *const u8 = ptr::with_exposed_provenance(source.0 as usize);
    // SAFETY: both ranges are mapped and disjoint, as this function requires.
    unsafe { ptr::copy_nonoverlapping(source, destination, bytes as usize) };
}

/// Bytes of the longest row of the address table, one address a rank.
const ROW: u64 = 8 * MAX_RANKS as u64;

/// Copies with the guarantees of [`copy`]. What is no longer than a row of the address table, and aligned like one, is
/// stored by words of 8 bytes: a receive may look up an address while the row is cleared.
///
/// # Safety
/// As for [`copy`].
pub(crate) unsafe fn transfer(destination: DeviceAddress, source: DeviceAddress, bytes: u64) {
    let aligned = (destination.0 | source.0 | bytes).is_multiple_of(8);
    if bytes > ROW || !aligned {
        // SAFETY: both ranges are mapped and disjoint, as this function requires.
        return unsafe { copy(destination, source, bytes) };
    }
    for at in (0..bytes).step_by(8) {
        // SAFETY: both words are mapped, as this function requires, and aligned.
        unsafe {
            let word = long_at(DeviceAddress(source.0 + at)).load(Ordering::Relaxed);
            long_at(DeviceAddress(destination.0 + at)).store(word, Ordering::Relaxed);
        }
    }
}

/// Copies rows of bytes, with the guarantees of [`copy`].
///
/// # Safety
/// As for [`copy`], for each row.
pub(crate) unsafe fn copy_rows(rows: &RowsCopy) {
    for row in 0..rows.rows {
        let destination = DeviceAddress(rows.destination.0 + row * rows.destination_stride);
        let source = DeviceAddress(rows.source.0 + row * rows.source_stride);
        // SAFETY: both rows are mapped and disjoint, as this function requires.
        unsafe { copy(destination, source, rows.bytes) };
    }
}

/// Bytes that a swap sets aside at a time: they stay in the L1 cache.
const SWAPPED_AT_ONCE: usize = 4096;

/// Swaps two ranges by three copies in the cache, with the guarantees of [`copy`].
///
/// # Safety
/// As for [`copy`].
pub(crate) unsafe fn swap(one: DeviceAddress, other: DeviceAddress, bytes: u64) {
    let mut aside = [0u8; SWAPPED_AT_ONCE];
    let place = DeviceAddress(aside.as_mut_ptr().expose_provenance() as u64);
    let mut done = 0;
    while done < bytes {
        let length = (bytes - done).min(SWAPPED_AT_ONCE as u64);
        let (one, other) = (DeviceAddress(one.0 + done), DeviceAddress(other.0 + done));
        // SAFETY: both ranges are mapped and disjoint, and `aside` is as long as the longest piece.
        unsafe {
            copy(place, one, length);
            copy(one, other, length);
            copy(other, place, length);
        }
        done += length;
    }
}

/// Fills memory with a byte.
///
/// # Safety
/// The range is mapped.
pub(crate) unsafe fn fill(destination: DeviceAddress, value: u8, bytes: u64) {
    if bytes == 0 {
        return;
    }
    let destination: *mut u8 = ptr::with_exposed_provenance_mut(destination.0 as usize);
    // SAFETY: the range is mapped, as this function requires.
    unsafe { ptr::write_bytes(destination, value, bytes as usize) };
}
