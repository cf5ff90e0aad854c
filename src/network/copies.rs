//! A stream of the network's own, whose work is counted: when a piece of it is complete is read from a word in pinned
//! memory, without a call of the driver, which other streams and captures could delay.

use super::slots::Slot;
use crate::backend::abi::{
    DeviceAddress, MethodCode, RawStream, SignalPlacementCode, SignalTarget, Transfer, TransferRow,
    WordOperation,
};
use crate::backend::{Backend, CallResult, Device, RemoteAccess, Signals};
use std::sync::Arc;
use std::time::{Duration, Instant};
use symmem_core::epoch::reached;

/// Time without progress after which the driver is asked whether the stream has failed.
const SUSPICIOUS: Duration = Duration::from_millis(200);

/// Grid of a copy: a block for as many bytes, and no more than a bus to the host needs.
const BLOCK_BYTES: u64 = 32 << 10;
const MOST_BLOCKS: u64 = 8;
const THREADS: u32 = 512;

/// Work on a [`Copies`] up to a point.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u32);

/// The stream.
pub struct Copies {
    backend: Arc<Backend>,
    stream: RawStream,
    /// The stream raises its start word to the number of the last work that is complete.
    slot: Slot,
    counted: u32,
    /// The count seen at the last look, and when it was seen first.
    seen: u32,
    since: Instant,
}

impl Copies {
    /// Takes a stream and a pair of words that nothing else uses.
    pub fn new(backend: Arc<Backend>, stream: RawStream, slot: Slot) -> Self {
        Self {
            backend,
            stream,
            slot,
            counted: 0,
            seen: 0,
            since: Instant::now(),
        }
    }

    /// Enqueues a copy between two addresses of this device.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Safety
    /// Both ranges are live, and nobody writes to them, until a later [`Copies::count`] is done.
    pub unsafe fn copy(
        &mut self,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
    ) -> CallResult<()> {
        // By a kernel: copy engines take what streams give them in order, so that a copy behind a wait for the network, on
        // any stream of the device, would keep this one from the wait that it ends.
        let transfer = Transfer {
            row: TransferRow {
                bytes,
                method: MethodCode::VECTOR,
                blocks: bytes.div_ceil(BLOCK_BYTES).clamp(1, MOST_BLOCKS) as u32,
                threads: THREADS,
                ..TransferRow::default()
            },
            ..Transfer::by_engine(to, from, bytes)
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.transfer(&transfer, self.stream) }
    }

    /// Enqueues a store of a signal's value, behind all earlier work.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Safety
    /// The word is live until a later [`Copies::count`] is done.
    pub unsafe fn signal(
        &mut self,
        word: DeviceAddress,
        value: u32,
        placement: SignalPlacementCode,
    ) -> CallResult<()> {
        let target = SignalTarget {
            word,
            value,
            ..SignalTarget::default()
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.signal_give(&target, placement, self.stream) }
    }

    /// Enqueues an update of a word, behind all earlier work.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Safety
    /// The words are live until a later [`Copies::count`] is done.
    pub unsafe fn update(&mut self, operation: &WordOperation) -> CallResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.word_update(operation, self.stream) }
    }

    /// Enqueues the count of all earlier work.
    ///
    /// # Errors
    /// The backend's.
    pub fn count(&mut self) -> CallResult<Ticket> {
        let next = self.counted.wrapping_add(1);
        let target = self.slot.start(Some(next));
        // SAFETY: the slot lives until the stream is idle.
        unsafe {
            let device = SignalPlacementCode::DEVICE;
            self.backend.signal_give(&target, device, self.stream)
        }?;
        if !self.is_pending() {
            self.since = Instant::now();
        }
        self.counted = next;
        Ok(Ticket(next))
    }

    /// Returns whether the work up to a ticket is complete.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        reached(self.slot.started(), ticket.0)
    }

    /// Returns whether counted work is not complete.
    pub fn is_pending(&self) -> bool {
        self.slot.started() != self.counted
    }

    /// Looks for a failure of the stream, if it has made no progress for long.
    ///
    /// # Errors
    /// That failure.
    pub fn check(&mut self) -> CallResult<()> {
        let seen = self.slot.started();
        if seen != self.seen || seen == self.counted {
            self.seen = seen;
            self.since = Instant::now();
        } else if self.since.elapsed() > SUSPICIOUS {
            self.since = Instant::now();
            // SAFETY: the stream lives as long as the network.
            unsafe { self.backend.stream_idle(self.stream) }?;
        }
        Ok(())
    }

    /// Waits until the stream is idle, or the limit passes. Returns whether it is.
    pub fn drain(&self, limit: Duration) -> bool {
        let start = Instant::now();
        // SAFETY: the stream lives as long as the network.
        while !matches!(unsafe { self.backend.stream_idle(self.stream) }, Ok(true)) {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }
}
