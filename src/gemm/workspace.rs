//! What an operation keeps on the device: memory that peers write, side streams, the library's plans.
//!
//! Everything is made with the operation, since the driver may wait for the device, or take memory, where it
//! makes such things, and no call may wait for that. It is given up like a module: once no graph has it and
//! this rank's streams are idle.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, Gemm};
use crate::base::error::Result;
use crate::gemm::plan::{On, Step};
use crate::gemm::tuning::Scratch;
use crate::rank::allocation::Allocation;
use crate::rank::context::Inner;
use crate::rank::side::SideStream;
use std::sync::Arc;

/// The words and counters of one operation: symmetric, zeroed, laid out alike on all ranks.
///
/// ```text
/// barrier    [rank]           SIGNAL_STRIDE bytes apart: raised by that rank at barriers, or when it comes to a call
/// signals    [rank]           raised by that rank when its shard is here
/// turn                        raised by the rank that hands a link on
/// arrivals   [shard][chunk]   raised when that chunk is here
/// counters                    32 bits each, this rank's own: barriers, turns given, turns waited for, then
///                             signals given to each rank, signals waited for from each
/// calls      [block]          32 bits each: of the blocks of a kernel that is the barrier, too
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    world: u64,
    chunks: u64,
}

impl Words {
    pub(super) fn new(world: usize, chunks: u32) -> Self {
        Self {
            world: world as u64,
            chunks: u64::from(chunks),
        }
    }

    fn arrivals_at(&self) -> u64 {
        (2 * self.world + 1) * SIGNAL_STRIDE
    }

    fn counters_at(&self) -> u64 {
        self.arrivals_at() + self.world * self.chunks * SIGNAL_STRIDE
    }

    fn calls_at(&self) -> u64 {
        self.counters_at() + ((3 + 2 * self.world) * 4).next_multiple_of(SIGNAL_STRIDE)
    }

    /// Bytes of them.
    pub(super) fn bytes(&self) -> u64 {
        self.calls_at() + (u64::from(AT_ONCE_BLOCKS) * 4).next_multiple_of(SIGNAL_STRIDE)
    }
}

/// The words of an operation where they are.
#[derive(Clone, Copy)]
pub(super) struct Signals<'a> {
    pub(super) words: Words,
    pub(super) allocation: &'a Allocation,
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) channel: u32,
    pub(super) watch: Watch,
}

impl Signals<'_> {
    fn own(&self, offset: u64) -> DeviceAddress {
        self.allocation.at(self.rank, offset)
    }

    fn counter(&self, index: u64) -> DeviceAddress {
        self.own(self.words.counters_at() + index * 4)
    }

    /// The value that arrival words reach in a call: the number of its first barrier.
    pub(super) fn epoch(&self) -> DeviceAddress {
        self.counter(0)
    }

    /// Of each block of a kernel that is the barrier, too: how many calls it has seen.
    pub(super) fn calls(&self) -> DeviceAddress {
        self.own(self.words.calls_at())
    }

    /// A rank's words that say who has come to the call of such a kernel.
    pub(super) fn entered(&self, at: usize) -> DeviceAddress {
        self.allocation.at(at, 0)
    }

    /// A rank's arrival words.
    pub(super) fn arrivals(&self, at: usize) -> DeviceAddress {
        self.allocation.at(at, self.words.arrivals_at())
    }

    /// The word at `at` that says that a chunk of this rank's shard is there.
    pub(super) fn arrival(&self, at: usize, chunk: u32) -> DeviceAddress {
        let index = self.rank as u64 * self.words.chunks + u64::from(chunk);
        DeviceAddress(self.arrivals(at).0 + index * SIGNAL_STRIDE)
    }

    /// A barrier of all ranks.
    pub(super) fn barrier(&self) -> Barrier {
        let mut peers = [DeviceAddress::NULL; MAX_RANKS];
        for (peer, word) in peers.iter_mut().enumerate().take(self.world) {
            *word = self.allocation.at(peer, self.rank as u64 * SIGNAL_STRIDE);
        }
        Barrier {
            watch: self.watch,
            epoch: self.epoch(),
            own: self.own(0),
            peers,
            world: self.world as u32,
            slot: self.channel,
        }
    }

    /// The signal to a peer that the own shard is there.
    pub(super) fn give(&self, peer: usize) -> SignalTarget {
        let word = (self.words.world + self.rank as u64) * SIGNAL_STRIDE;
        SignalTarget {
            word: self.allocation.at(peer, word),
            epoch: self.counter(3 + peer as u64),
            ..SignalTarget::default()
        }
    }

    /// The wait for a peer's.
    pub(super) fn receive(&self, peer: usize) -> SignalWait {
        let word = (self.words.world + peer as u64) * SIGNAL_STRIDE;
        SignalWait {
            word: self.own(word),
            epoch: self.counter(3 + self.words.world + peer as u64),
            watch: self.watch,
            peer: peer as u32,
            slot: self.channel,
            ..SignalWait::default()
        }
    }

    /// A turn: a signal to the next user of a link, and the wait for the one before.
    pub(super) fn turn(&self, to: usize, from: usize) -> (SignalTarget, SignalWait) {
        let word = 2 * self.words.world * SIGNAL_STRIDE;
        let target = SignalTarget {
            word: self.allocation.at(to, word),
            epoch: self.counter(1),
            ..SignalTarget::default()
        };
        let wait = SignalWait {
            word: self.own(word),
            epoch: self.counter(2),
            watch: self.watch,
            peer: from as u32,
            slot: self.channel,
            ..SignalWait::default()
        };
        (target, wait)
    }
}

/// The side streams and events of a call. Captured calls have others than eager ones: a stream that takes
/// part in a capture takes no eager work until that has ended.
#[derive(Default)]
pub(super) struct Sides {
    pub(super) copies: Vec<SideStream>,
    pub(super) products: Vec<SideStream>,
    pub(super) events: Vec<RawEvent>,
}

impl Sides {
    /// The side stream that is meant; none for the caller's, which all work is on where there are none.
    /// Events then keep nothing in order that is not.
    pub(super) fn side(&self, on: On) -> Option<&SideStream> {
        match on {
            On::Main => None,
            On::Copies(index) => self.copies.get(index),
            On::Products(index) => self.products.get(index),
        }
    }

    /// Makes those that `steps` need, in what is already there, so that what was made before a failure is
    /// given back with the rest.
    fn open(&mut self, shared: &Inner, steps: &[Step]) -> Result<()> {
        for step in steps {
            match *step {
                Step::Fork { on: On::Copies(_) } => self.copies.push(shared.side_stream()?),
                Step::Fork {
                    on: On::Products(_),
                } => self.products.push(shared.side_stream()?),
                Step::Mark { event, .. } => {
                    while self.events.len() <= event {
                        let made = shared.backend.event_create();
                        let made =
                            made.map_err(|failure| shared.failed("event_create", failure))?;
                        self.events.push(made);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A product that the library has prepared: of so many rows, on one stream.
#[derive(Clone, Copy)]
pub(super) struct Prepared {
    pub(super) rows: u64,
    pub(super) on: On,
    pub(super) raw: RawGemm,
    /// Which of the library's ways.
    pub(super) candidate: u32,
    /// The same where it was stored, and need not be found out.
    pub(super) stored: Option<u32>,
    /// Whether it was stored, or found out by timing; else it is the library's first guess.
    pub(super) known: bool,
}

/// What an operation keeps.
#[derive(Default)]
pub(crate) struct Workspace {
    /// The gathered `A`, where the caller gives none.
    pub(super) gathered: Option<Arc<Allocation>>,
    /// Shards one behind the other, where they are no part of it.
    pub(super) staging: Option<Arc<Allocation>>,
    pub(super) signals: Option<Arc<Allocation>>,
    /// Eager, captured.
    pub(super) sides: [Sides; 2],
    pub(super) prepared: Vec<Prepared>,
    /// Where a timing was broken off, what it may still use.
    pub(super) scratch: Option<Scratch>,
}

impl Workspace {
    /// Makes the side streams, twice; for captures only where there are copy engines: a backend without any
    /// records one stream, and replays its work in the order in which it was enqueued. That is an order that
    /// every plan can be done in.
    ///
    /// # Errors
    /// The backend's.
    pub(super) fn open_sides(&mut self, shared: &Inner, steps: &[Step]) -> Result<()> {
        let [eager, captured] = &mut self.sides;
        eager.open(shared, steps)?;
        if shared.capabilities.flags & CAPABILITY_COPY_ENGINE == 0 {
            return Ok(());
        }
        captured.open(shared, steps)
    }

    /// Enqueues a product that was prepared.
    ///
    /// # Safety
    /// As [`Gemm::gemm`].
    pub(super) unsafe fn multiply(
        &self,
        backend: &Backend,
        (rows, on): (u64, On),
        operands: &GemmOperands,
        stream: RawStream,
    ) -> CallResult<()> {
        let known = |prepared: &&Prepared| prepared.rows == rows && prepared.on == on;
        let Some(prepared) = self.prepared.iter().find(known) else {
            return Err(crate::backend::Failure::new(
                Status::INVALID_ARGUMENT,
                "gemm",
                format!("no product of {rows} rows was prepared for the {on}; please report this"),
            ));
        };
        // SAFETY: prepared products live as long as this; the rest is the caller's word.
        unsafe { backend.gemm(prepared.raw, prepared.candidate, operands, stream) }
    }

    /// Gives back what only this rank has. Nothing uses it any more. Gives the memory, which peers may yet
    /// use.
    pub(crate) fn release(&self, shared: &Inner) -> Vec<Arc<Allocation>> {
        let (rank, backend) = (shared.rank, &shared.backend);
        for prepared in &self.prepared {
            // SAFETY: prepared by `operation`, and used by no stream or graph any more.
            if let Err(failure) = unsafe { backend.gemm_release(prepared.raw) } {
                tracing::warn!(rank, %failure, "gemm_release");
            }
        }
        for sides in &self.sides {
            for &event in &sides.events {
                // SAFETY: made in `open`, and used by this operation's streams only, which are idle.
                if let Err(failure) = unsafe { backend.event_destroy(event) } {
                    tracing::warn!(rank, %failure, "event_destroy");
                }
            }
            let streams = sides.copies.iter().chain(&sides.products);
            streams.for_each(|&side| shared.close_side_stream(side));
        }
        if let Some(scratch) = &self.scratch {
            scratch.release(shared);
        }
        let memory = [&self.gathered, &self.staging, &self.signals];
        memory.into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_overlap_and_counters_have_lines_of_their_own() {
        for (world, chunks) in [(1, 1), (2, 4), (72, 7)] {
            let words = Words::new(world, chunks);
            let world = world as u64;
            assert_eq!(words.arrivals_at(), (2 * world + 1) * SIGNAL_STRIDE);
            let arrivals = world * u64::from(chunks) * SIGNAL_STRIDE;
            assert_eq!(words.counters_at(), words.arrivals_at() + arrivals);
            assert!(words.calls_at() >= words.counters_at() + (3 + 2 * world) * 4);
            assert!(words.bytes() >= words.calls_at() + u64::from(AT_ONCE_BLOCKS) * 4);
        }
    }
}
