//! Memory that a call names: a part of a symmetric allocation, without its element type.

use crate::rank::allocation::Allocation;
use std::sync::Arc;

/// A range of bytes of a symmetric allocation, the same at every rank. Its addresses are had from a
/// [`crate::rank::submit::Submit`] alone, which keeps what enqueued work uses.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    allocation: &'a Arc<Allocation>,
    offset: u64,
    bytes: u64,
}

impl<'a> Operand<'a> {
    /// `bytes` bytes from `offset` on, which the allocation has.
    pub fn new(allocation: &'a Arc<Allocation>, offset: u64, bytes: u64) -> Self {
        Self {
            allocation,
            offset,
            bytes,
        }
    }

    /// Its first byte, from the allocation's.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Part of it.
    pub fn part(&self, offset: u64, bytes: u64) -> Self {
        Self {
            offset: self.offset + offset,
            bytes,
            ..*self
        }
    }

    /// The number of its allocation, alike on all ranks.
    pub fn number(&self) -> u64 {
        self.allocation.number
    }

    /// The row of its allocation in the table of addresses, alike on all ranks.
    pub fn row(&self) -> u64 {
        self.allocation.entry() as u64
    }

    /// Whether it is as long as its allocation has room for.
    pub fn is_inside(&self) -> bool {
        self.offset + self.bytes <= self.allocation.bytes()
    }

    /// Whether it can be reached at all ranks at once.
    pub fn is_in_multicast(&self) -> bool {
        self.allocation.at_all(0).is_some()
    }

    /// Returns the number of its first byte's address at `rank`, for checks of alignment and overlap. Only
    /// [`Submit::address`](crate::rank::submit::Submit::address) returns an address for the device.
    pub fn start(&self, rank: usize) -> u64 {
        self.allocation.at(rank, self.offset).0
    }

    /// Whether it begins, at `rank`, `bytes` behind the first byte of `other`. By addresses: registered memory
    /// may be in two allocations.
    pub fn is_at(&self, rank: usize, other: &Operand<'_>, bytes: u64) -> bool {
        self.start(rank) == other.start(rank) + bytes
    }

    /// Whether the two have a byte in common at `rank`.
    pub fn overlaps(&self, rank: usize, other: &Operand<'_>) -> bool {
        let (one, two) = (self.start(rank), other.start(rank));
        self.bytes > 0 && other.bytes > 0 && one < two + other.bytes && two < one + self.bytes
    }

    /// The allocation, for this folder: everybody else asks a `Submit`.
    pub(in crate::rank) fn allocation(&self) -> &'a Arc<Allocation> {
        self.allocation
    }
}
