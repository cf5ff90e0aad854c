//! An operand of a call: a part of a symmetric allocation, without its element type.

use crate::rank::allocation::Allocation;
use std::sync::Arc;

/// A range of bytes of a symmetric allocation, the same at every rank. Only a [`crate::rank::submit::Submit`],
/// which keeps alive what enqueued work uses, returns its device addresses.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    allocation: &'a Arc<Allocation>,
    offset: u64,
    bytes: u64,
}

impl<'a> Operand<'a> {
    /// Makes the range of `bytes` bytes from `offset` on, which is inside the allocation.
    pub fn new(allocation: &'a Arc<Allocation>, offset: u64, bytes: u64) -> Self {
        Self {
            allocation,
            offset,
            bytes,
        }
    }

    /// Returns the offset in the allocation, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a part of the range, in bytes from its start.
    pub fn part(&self, offset: u64, bytes: u64) -> Self {
        Self {
            offset: self.offset + offset,
            bytes,
            ..*self
        }
    }

    /// Returns the number of its allocation, the same on all ranks.
    pub fn number(&self) -> u64 {
        self.allocation.number
    }

    /// Returns the row of its allocation in the address table, the same on all ranks.
    pub fn row(&self) -> u64 {
        self.allocation.entry() as u64
    }

    /// Returns whether the range is inside its allocation.
    pub fn is_inside(&self) -> bool {
        self.offset + self.bytes <= self.allocation.bytes()
    }

    /// Returns whether multicast, real or emulated, reaches it.
    pub fn is_in_multicast(&self) -> bool {
        self.allocation.at_all(0).is_some()
    }

    /// Returns the address of its first byte at `rank` as a number, for checks of alignment and overlap. Only
    /// [`Submit::address`](crate::rank::submit::Submit::address) returns an address for the device.
    pub fn start(&self, rank: usize) -> u64 {
        self.allocation.at(rank, self.offset).0
    }

    /// Returns whether, at `rank`, it begins `bytes` behind the first byte of `other`. Compares addresses:
    /// registered memory may be in two allocations.
    pub fn is_at(&self, rank: usize, other: &Operand<'_>, bytes: u64) -> bool {
        self.start(rank) == other.start(rank) + bytes
    }

    /// Returns whether the two have a byte in common at `rank`.
    pub fn overlaps(&self, rank: usize, other: &Operand<'_>) -> bool {
        let (one, two) = (self.start(rank), other.start(rank));
        self.bytes > 0 && other.bytes > 0 && one < two + other.bytes && two < one + self.bytes
    }

    /// Returns the allocation, for this folder only: other folders use a `Submit`.
    pub(in crate::rank) fn allocation(&self) -> &'a Arc<Allocation> {
        self.allocation
    }
}
