//! The memory of a call: a range of bytes, without its element type.

use crate::backend::abi::DeviceAddress;
use crate::rank::allocation::Allocation;
use std::sync::Arc;

/// A range of bytes: of a symmetric allocation, the same at every rank, or of this rank's own memory. Only a
/// [`crate::rank::submit::Submit`], which keeps alive what enqueued work uses, returns its device addresses.
#[derive(Clone, Copy)]
pub struct MemoryRange<'a> {
    memory: Memory<'a>,
    /// From the start of the memory, in bytes.
    offset: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
enum Memory<'a> {
    Symmetric(&'a Arc<Allocation>),
    /// Memory of this rank's device that no peer needs to know.
    Own {
        start: DeviceAddress,
        /// The symmetric allocation that it is in; `None` for the caller's memory.
        allocation: Option<&'a Arc<Allocation>>,
    },
    /// No memory: a symmetric range of a call that is only explained.
    Supposed {
        start: u64,
        in_multicast: bool,
    },
}

impl<'a> MemoryRange<'a> {
    /// Makes the range of `bytes` bytes from `offset` on, which is inside the allocation.
    pub fn new(allocation: &'a Arc<Allocation>, offset: u64, bytes: u64) -> Self {
        Self {
            memory: Memory::Symmetric(allocation),
            offset,
            bytes,
        }
    }

    /// Makes the range of `bytes` bytes at `start` on this rank's device, in memory of the caller, who keeps it.
    pub fn own(start: DeviceAddress, bytes: u64) -> Self {
        let allocation = None;
        Self {
            memory: Memory::Own { start, allocation },
            offset: 0,
            bytes,
        }
    }

    /// Makes a range for questions about a call on symmetric memory that starts at the number `start`. Never to be enqueued.
    pub fn supposed(start: u64, (offset, bytes): (u64, u64), in_multicast: bool) -> Self {
        Self {
            memory: Memory::Supposed {
                start,
                in_multicast,
            },
            offset,
            bytes,
        }
    }

    /// Returns the range at `rank`, which is this one, as memory that no peer needs to know.
    pub fn only_at(self, rank: usize) -> Self {
        let Memory::Symmetric(allocation) = self.memory else {
            return self;
        };
        let start = allocation.at(rank, 0);
        let allocation = Some(allocation);
        Self {
            memory: Memory::Own { start, allocation },
            ..self
        }
    }

    /// Returns whether it is this rank's own memory, of which peers know nothing.
    pub fn is_own(&self) -> bool {
        matches!(self.memory, Memory::Own { .. })
    }

    /// Returns the offset in its memory, in bytes.
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

    /// Returns the number of its allocation, the same on all ranks; `None` for this rank's own memory.
    pub fn number(&self) -> Option<u64> {
        self.symmetric().map(|allocation| allocation.number)
    }

    /// Returns the row of its allocation in the address table, the same on all ranks of a node; `None` for this rank's own memory.
    pub fn row(&self) -> Option<u64> {
        self.symmetric().map(|allocation| allocation.entry() as u64)
    }

    /// Returns whether the range is inside its allocation. What the caller vouches for is.
    pub fn is_inside(&self) -> bool {
        self.allocation()
            .is_none_or(|allocation| self.offset + self.bytes <= allocation.bytes())
    }

    /// Returns whether multicast, real or emulated, reaches it.
    pub fn is_in_multicast(&self) -> bool {
        match self.memory {
            Memory::Symmetric(allocation) => allocation.at_all(0).is_some(),
            Memory::Own { .. } => false,
            Memory::Supposed { in_multicast, .. } => in_multicast,
        }
    }

    /// Returns the address of its first byte at `rank` as a number, for checks of alignment and overlap. Only
    /// [`Submit::address`](crate::rank::submit::Submit::address) returns an address for the device. This rank's own
    /// memory has one only here.
    pub fn start(&self, rank: usize) -> u64 {
        match self.memory {
            Memory::Symmetric(allocation) => allocation.at(rank, self.offset).0,
            Memory::Own { start, .. } => start.0 + self.offset,
            Memory::Supposed { start, .. } => start + self.offset,
        }
    }

    /// Returns whether, at `rank`, it begins `bytes` behind the first byte of `other`. Compares addresses:
    /// registered memory may be in two allocations.
    pub fn is_at(&self, rank: usize, other: &MemoryRange<'_>, bytes: u64) -> bool {
        self.start(rank) == other.start(rank) + bytes
    }

    /// Returns whether the two have a byte in common at `rank`.
    pub fn overlaps(&self, rank: usize, other: &MemoryRange<'_>) -> bool {
        let (one, two) = (self.start(rank), other.start(rank));
        self.bytes > 0 && other.bytes > 0 && one < two + other.bytes && two < one + self.bytes
    }

    /// Returns its allocation if all ranks have the range, for this folder only: other folders use a `Submit`.
    pub(in crate::rank) fn symmetric(&self) -> Option<&'a Arc<Allocation>> {
        match self.memory {
            Memory::Symmetric(allocation) => Some(allocation),
            Memory::Own { .. } | Memory::Supposed { .. } => None,
        }
    }

    /// Returns the allocation that it is in; `None` for the caller's memory. As [`MemoryRange::symmetric`], for this folder
    /// only.
    pub(in crate::rank) fn allocation(&self) -> Option<&'a Arc<Allocation>> {
        match self.memory {
            Memory::Symmetric(allocation) => Some(allocation),
            Memory::Own { allocation, .. } => allocation,
            Memory::Supposed { .. } => None,
        }
    }
}
