//! Start and done words in pinned host memory, through which a stream starts commands and waits for them.
//!
//! A queue's commands are counted by the host. A graph's are counted on the device, since a capture freezes values:
//! each replay raises the start word by one, and waits until the done word has come as far.

use crate::backend::abi::{
    DeviceAddress, HostMemory, SIGNAL_STRIDE, SignalTarget, SignalWait, Watch,
};
use crate::backend::{Backend, CallResult, Device};
use crate::base::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot: a line that the device writes, and one that the host writes.
const SLOT_BYTES: u64 = 2 * SIGNAL_STRIDE;
/// Slots of one allocation of pinned memory: as many as a program rarely exceeds, since pinned memory should not be
/// allocated while a kernel waits.
const CHUNK: u64 = 256;

/// Offset of the counter of starts, behind the start word and its count of sleepers.
const START_EPOCH: u64 = 8;
/// Offset of the word with which the blocks of a grid find the last.
const ARRIVALS: u64 = 12;
const DONE: u64 = SIGNAL_STRIDE;
/// Offset of the counter of waits.
const DONE_EPOCH: u64 = SIGNAL_STRIDE + 8;

/// A pair of words.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    host: u64,
    device: DeviceAddress,
}

impl Slot {
    /// Returns a slot in memory that is never freed.
    #[cfg(test)]
    pub fn leaked() -> Self {
        let memory: &'static mut [[u64; 16]; 2] = Box::leak(Box::default());
        let host = std::ptr::from_mut(memory).expose_provenance() as u64;
        Self {
            host,
            device: DeviceAddress(host),
        }
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: pinned memory of the pool, which outlives the network's streams; the words are accessed atomically only.
        unsafe {
            AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(
                (self.host + offset) as usize,
            ))
        }
    }

    fn at(&self, offset: u64) -> DeviceAddress {
        DeviceAddress(self.device.0 + offset)
    }

    fn clear(&self) {
        for offset in (0..SLOT_BYTES).step_by(4) {
            self.word(offset).store(0, Ordering::Relaxed);
        }
    }

    /// Returns the value that the stream has raised the start word to.
    pub fn started(&self) -> u32 {
        self.word(0).load(Ordering::Acquire)
    }

    /// Returns the value of the done word.
    pub fn done(&self) -> u32 {
        self.word(DONE).load(Ordering::Acquire)
    }

    /// Returns the host's pointer to the done word.
    pub fn done_word(&self) -> *const AtomicU32 {
        self.word(DONE)
    }

    /// Raises the done word, which releases the stream.
    pub fn finish(&self, value: u32) {
        // SAFETY: a word of this slot with its count of sleepers, in host memory.
        unsafe { symmem_core::host::raise_signal(DeviceAddress(self.host + DONE), value) };
    }

    /// Returns the signal that starts commands: with the value that the host has counted, or one counted on the device.
    pub fn start(&self, value: Option<u32>) -> SignalTarget {
        SignalTarget {
            word: self.device,
            epoch: match value {
                Some(_) => DeviceAddress::NULL,
                None => self.at(START_EPOCH),
            },
            arrivals: self.at(ARRIVALS),
            value: value.unwrap_or_default(),
            reserved: 0,
        }
    }

    /// Returns the wait for commands, as [`Slot::start`] counts.
    pub fn wait(&self, value: Option<u32>, watch: Watch) -> SignalWait {
        SignalWait {
            word: self.at(DONE),
            epoch: match value {
                Some(_) => DeviceAddress::NULL,
                None => self.at(DONE_EPOCH),
            },
            // The engine bounds each command, and raises the abort word.
            watch: Watch {
                deadline_ns: u64::MAX,
                ..watch
            },
            value: value.unwrap_or_default(),
            peer: watch.rank,
            slot: 0,
            reserved: 0,
        }
    }
}

/// The slots of a network.
pub struct Slots {
    free: Mutex<Vec<Slot>>,
    chunks: Mutex<Vec<HostMemory>>,
}

impl Slots {
    /// Allocates the first slots.
    ///
    /// # Errors
    /// The backend's.
    pub fn new(backend: &Backend) -> CallResult<Self> {
        let slots = Self {
            free: Mutex::default(),
            chunks: Mutex::default(),
        };
        slots.grow(backend)?;
        Ok(slots)
    }

    /// Allocates zeroed pinned memory that is freed with the slots.
    ///
    /// # Errors
    /// The backend's.
    pub fn allocate(&self, backend: &Backend, bytes: u64) -> CallResult<HostMemory> {
        let memory = backend.host_allocate(bytes)?;
        lock(&self.chunks).push(memory);
        Ok(memory)
    }

    fn grow(&self, backend: &Backend) -> CallResult<()> {
        let memory = self.allocate(backend, CHUNK * SLOT_BYTES)?;
        let slot = |index| Slot {
            host: memory.host + index * SLOT_BYTES,
            device: DeviceAddress(memory.device.0 + index * SLOT_BYTES),
        };
        lock(&self.free).extend((0..CHUNK).rev().map(slot));
        Ok(())
    }

    /// Takes a zeroed slot. Allocates if none is free.
    ///
    /// # Errors
    /// The backend's.
    pub fn take(&self, backend: &Backend) -> CallResult<Slot> {
        loop {
            if let Some(slot) = lock(&self.free).pop() {
                slot.clear();
                return Ok(slot);
            }
            self.grow(backend)?;
        }
    }

    /// Takes back a slot that no stream uses.
    pub fn give_back(&self, slot: Slot) {
        lock(&self.free).push(slot);
    }

    /// Returns the word at an address, if it is in a slot: the memory lives as long as this.
    pub fn word(&self, address: DeviceAddress) -> Option<&AtomicU32> {
        let chunks = lock(&self.chunks);
        let inside = |memory: &&HostMemory| {
            (memory.device.0..memory.device.0 + memory.bytes).contains(&address.0)
        };
        let memory = chunks.iter().find(inside)?;
        let host = memory.host + (address.0 - memory.device.0);
        // SAFETY: zeroed pinned memory of this pool, freed with it; its aligned words are accessed atomically only.
        host.is_multiple_of(4).then(|| unsafe {
            AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(host as usize))
        })
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// No stream uses a slot, and nothing else does from here on.
    pub unsafe fn free(&self, backend: &Backend) {
        lock(&self.free).clear();
        for memory in lock(&self.chunks).drain(..) {
            // SAFETY: allocated by `grow`; guaranteed by the caller. A failure cannot be handled here.
            let _ = unsafe { backend.host_free(memory) };
        }
    }
}
