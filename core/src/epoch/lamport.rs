//! Lamport packets: words of data that are their own flags. See
//! [`ReduceLamportArguments`](crate::backend::abi::ReduceLamportArguments).

use super::rules::Word;
use crate::backend::abi::LAMPORT_BUFFERS;
use std::sync::atomic::Ordering;

/// Returns the packet of a word of data: the complement, so that fresh memory is empty. Data with all bits set, which
/// would be empty, loses its sign bit.
#[inline]
pub fn to_packet(data: u32) -> u32 {
    match !data {
        0 => 1 << 31,
        packet => packet,
    }
}

/// Returns the data of a packet.
#[inline]
pub fn from_packet(packet: u32) -> u32 {
    !packet
}

/// Returns the buffer that the next call uses.
#[inline]
pub fn next_buffer(buffer: u64) -> u64 {
    (buffer + 1) % LAMPORT_BUFFERS
}

/// Sends a word of data. The place is empty.
#[inline]
pub fn send<W: Word>(place: &W, data: u32) {
    place.store(to_packet(data), Ordering::Relaxed);
}

/// Returns the data that has arrived at a place; `None` while it is empty.
#[inline]
pub fn received<W: Word>(place: &W) -> Option<u32> {
    match place.load(Ordering::Relaxed) {
        0 => None,
        packet => Some(from_packet(packet)),
    }
}

/// Empties a place.
#[inline]
pub fn empty<W: Word>(place: &W) {
    place.store(0, Ordering::Relaxed);
}

/// Stands before what a call sends, and behind its last wait. A peer that has all packets of the next call may send those
/// of the call after it into the places that this call has emptied: the two fences order its stores after the emptying
/// ones. (Between kernels of a GPU's stream, the boundary does this.)
#[inline]
pub fn fence<W: Word>() {
    W::full_fence();
}
