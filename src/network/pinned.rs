//! Pinned memory of a rank through which GPU memory travels between nodes, and how it is divided.

use super::message::SMALL;
use crate::backend::abi::{DeviceAddress, HostMemory};

/// Number under which the connections know the pinned memory of peers. No allocation has it.
pub const PINNED: u64 = u64::MAX;

/// Bytes of a piece of a large transfer.
pub const PIECE: u64 = 512 << 10;
/// Small messages that this rank sends, and that it receives, at once.
const SMALL_SLOTS: u64 = 32;
/// Pieces on their way to peers.
const SENDING: u64 = 5;
/// Pieces that peers may put here. None waits for a piece of another kind, so that ranks that send to each other cannot
/// wait for each other.
const RECEIVING: u64 = 5;
/// Pieces that this rank has asked peers for.
const GETTING: u64 = 4;

/// Bytes of the memory: 8 MiB.
pub const BYTES: u64 = 2 * SMALL_SLOTS * SMALL + (SENDING + RECEIVING + GETTING) * PIECE;

/// The memory. Its parts are named by their offset.
#[derive(Clone, Copy, Debug)]
pub struct Pinned(HostMemory);

impl Pinned {
    /// Takes memory of [`BYTES`] that the device and the host address.
    pub fn new(memory: HostMemory) -> Self {
        Self(memory)
    }

    /// Returns the host's address of a byte.
    pub fn host(&self, offset: u64) -> u64 {
        self.0.host + offset
    }

    /// Returns the device's address of a byte.
    pub fn device(&self, offset: u64) -> DeviceAddress {
        DeviceAddress(self.0.device.0 + offset)
    }

    /// Copies bytes to an offset.
    ///
    /// # Safety
    /// They are inside, and nobody else uses that part.
    pub unsafe fn fill(&self, offset: u64, data: &[u8]) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.host(offset) as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
    }

    /// Reads a number at an offset.
    ///
    /// # Safety
    /// It is inside, and nobody writes to that part.
    pub unsafe fn number(&self, offset: u64) -> u64 {
        let at = std::ptr::with_exposed_provenance::<u64>(self.host(offset) as usize);
        // SAFETY: guaranteed by the caller; the device wrote it behind the compiler's back.
        unsafe { at.read_volatile() }
    }
}

/// Slots of equal size, by offset.
#[derive(Debug)]
pub struct Pool {
    free: Vec<u64>,
}

impl Pool {
    fn new(first: u64, bytes: u64, slots: u64) -> Self {
        Self {
            free: (0..slots).rev().map(|slot| first + slot * bytes).collect(),
        }
    }

    /// Takes a slot, if one is free.
    pub fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// Takes back a slot that nobody uses.
    pub fn give_back(&mut self, slot: u64) {
        self.free.push(slot);
    }
}

/// The pools of a rank.
#[derive(Debug)]
pub struct Pools {
    /// Small messages to peers, and words.
    pub small: Pool,
    /// Small messages of peers, and words.
    pub small_received: Pool,
    /// Pieces on their way to peers.
    pub sending: Pool,
    /// Pieces that peers put here.
    pub receiving: Pool,
    /// Pieces that this rank has asked for.
    pub getting: Pool,
}

impl Pools {
    /// Divides the memory.
    pub fn new() -> Self {
        let mut end = 0;
        let mut pool = |bytes, slots| {
            let first = end;
            end += bytes * slots;
            Pool::new(first, bytes, slots)
        };
        Self {
            small: pool(SMALL, SMALL_SLOTS),
            small_received: pool(SMALL, SMALL_SLOTS),
            sending: pool(PIECE, SENDING),
            receiving: pool(PIECE, RECEIVING),
            getting: pool(PIECE, GETTING),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_divide_the_memory_without_overlap_and_without_rest() {
        let pools = Pools::new();
        let of = |pool: &Pool, bytes| {
            let slots = pool.free.iter();
            slots.map(|&slot| (slot, slot + bytes)).collect::<Vec<_>>()
        };
        let mut all = [
            of(&pools.small, SMALL),
            of(&pools.small_received, SMALL),
            of(&pools.sending, PIECE),
            of(&pools.receiving, PIECE),
            of(&pools.getting, PIECE),
        ]
        .concat();
        all.sort_unstable();
        assert_eq!(all[0].0, 0);
        assert!(all.windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!(all[all.len() - 1].1, BYTES);
        assert_eq!(BYTES, 8 << 20);
    }
}
