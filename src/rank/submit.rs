//! Submission of work: the only path from a memory range to a device address.

use crate::backend::abi::{DeviceAddress, RawStream};
use crate::backend::{Backend, CallResult};
use crate::base::error::Result;
use crate::base::lock::{into_inner, lock};
use crate::rank::driver::Driver;
use crate::rank::memory_range::MemoryRange;
use crate::rank::release::{Held, Resource};
use crate::rank::sequence::Sequence;
use std::sync::{Arc, Mutex};
use symmem_core::tickets::Ticket;

/// Recorded work outside of the stream that each launch of its graph runs once more.
pub trait Launched: Send + Sync {
    /// Tells it of a launch that follows.
    fn launch(&self);
    /// Takes back a launch that was refused.
    fn take_back(&self);
}

/// The resources that recorded work uses, collected while a stream is captured.
#[derive(Default)]
pub struct Recording {
    held: Mutex<Vec<Held>>,
    collectives: Mutex<Collectives>,
    launched: Mutex<Vec<Arc<dyn Launched>>>,
}

/// The collectives in recorded work.
pub struct Collectives {
    /// Their sequences, each once.
    pub sequences: Vec<Arc<Sequence>>,
    /// The most collectives that may be under way at once, so that the largest of their grids has room.
    pub fits: u32,
}

impl Default for Collectives {
    fn default() -> Self {
        Self {
            sequences: Vec::new(),
            fits: u32::MAX,
        }
    }
}

impl Recording {
    fn keep<R: Resource + 'static>(&self, resource: &Arc<R>) {
        let mut held = lock(&self.held);
        let same = |known: &Held| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(resource));
        if !held.iter().any(same) {
            held.push(resource.clone());
        }
    }

    fn follow(&self, sequence: &Arc<Sequence>, fits: u32) {
        self.keep(sequence);
        let mut collectives = lock(&self.collectives);
        collectives.fits = collectives.fits.min(fits);
        let known = &mut collectives.sequences;
        if !known.iter().any(|known| Arc::ptr_eq(known, sequence)) {
            known.push(sequence.clone());
        }
    }

    /// Returns all resources, the collectives, and what each launch runs outside of the stream.
    pub fn finish(self) -> (Vec<Held>, Collectives, Vec<Arc<dyn Launched>>) {
        (
            into_inner(self.held),
            into_inner(self.collectives),
            into_inner(self.launched),
        )
    }
}

/// Exists while a call enqueues work. Every address that it returns belongs to memory that stays mapped until
/// the work has passed: an eager call borrows its operands until it has enqueued, and they are released only
/// once all streams are idle; a graph holds the operands of a captured call.
#[must_use]
pub struct Submit<'q> {
    operation: &'static str,
    driver: &'q Driver,
    raw: RawStream,
    recording: Option<&'q Recording>,
    /// Taken before any address is looked up, returned after the work is enqueued.
    _ticket: Ticket<'q>,
}

impl<'q> Submit<'q> {
    /// Begins to enqueue the work of `operation`. Outside of a capture it neither allocates nor locks.
    #[inline]
    pub fn begin(
        operation: &'static str,
        driver: &'q Driver,
        raw: RawStream,
        recording: Option<&'q Recording>,
    ) -> Self {
        Self {
            operation,
            driver,
            raw,
            recording,
            _ticket: driver.streams.tickets.take(),
        }
    }

    /// Ends the submission, and turns the backend's failure into this rank's error.
    ///
    /// # Errors
    /// The failure in `outcome`.
    #[inline]
    pub fn end<R>(self, outcome: CallResult<R>) -> Result<R> {
        outcome.map_err(|failure| self.driver.failed(self.operation, failure))
    }

    /// Returns this rank.
    #[inline]
    pub fn rank(&self) -> usize {
        self.driver.rank
    }

    /// Returns the device and the health of its communicator.
    pub fn driver(&self) -> &'q Driver {
        self.driver
    }

    /// Returns the backend.
    #[inline]
    pub fn backend(&self) -> &'q Backend {
        &self.driver.backend
    }

    /// Returns the stream.
    #[inline]
    pub fn stream(&self) -> RawStream {
        self.raw
    }

    /// Makes the recorded graph, if there is one, hold `resource`.
    #[inline]
    pub fn hold<R: Resource + 'static>(&self, resource: &Arc<R>) {
        if let Some(recording) = self.recording {
            recording.keep(resource);
        }
    }

    /// Makes the recorded graph, if there is one, run collectives of `sequence`. Its grids have room if at most
    /// `fits` collectives may be under way at once.
    #[inline]
    pub fn follow(&self, sequence: &Arc<Sequence>, fits: u32) {
        if let Some(recording) = self.recording {
            recording.follow(sequence, fits);
        }
    }

    /// Makes each launch of the recorded graph, if there is one, launch `work` too. Else the work is launched now, once.
    pub fn launch(&self, work: &Arc<dyn Launched>) {
        match self.recording {
            Some(recording) => lock(&recording.launched).push(work.clone()),
            None => work.launch(),
        }
    }

    /// Takes back a launch whose work was refused.
    pub fn take_back(&self, work: &Arc<dyn Launched>) {
        if self.recording.is_none() {
            work.take_back();
        }
    }

    /// Returns the allocation's number and the offset of a range that a rank of another node has too; `None` for this
    /// rank's own memory.
    #[inline]
    pub fn place(&self, range: &MemoryRange<'_>) -> Option<(u64, u64)> {
        self.hold_memory(range);
        Some((range.number()?, range.offset()))
    }

    /// Returns the address of the first byte of `range` at `rank`.
    #[inline]
    pub fn address(&self, range: &MemoryRange<'_>, rank: usize) -> DeviceAddress {
        self.hold_memory(range);
        DeviceAddress(range.start(rank))
    }

    /// Returns the address of the first byte of the range's allocation at each rank; `None` for this rank's own memory.
    #[inline]
    pub fn bases<'a>(&self, range: &MemoryRange<'a>) -> Option<&'a [DeviceAddress]> {
        self.hold_memory(range);
        Some(range.symmetric()?.peers())
    }

    /// Returns the multicast address of `range`: null if multicast is emulated, `None` if multicast does not
    /// reach it.
    #[inline]
    pub fn at_all(&self, range: &MemoryRange<'_>) -> Option<DeviceAddress> {
        self.hold_memory(range);
        range.symmetric()?.at_all(range.offset())
    }

    /// What the caller's memory needs is the caller's to keep.
    #[inline]
    fn hold_memory(&self, range: &MemoryRange<'_>) {
        if let Some(allocation) = range.allocation() {
            self.hold(allocation);
        }
    }
}
