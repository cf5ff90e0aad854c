//! One rank's buffers, stream and clock, and the four ways to run a transfer with them: checked,
//! looped, replayed, one at a time.

use super::Result;
use super::clock::Clock;
use super::data::{GUARD, POISON, Patterns};
use super::pairing::Role;
use super::poison::poison;
use crate::report::Direction;
use std::time::Instant;
use symmem::{Communicator, Graph, Queue, Stream, SymmetricBuffer, TransferOptions};

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// A put or get of this library.
    Transfer(TransferOptions),
    /// `memcpy` by the calling thread, between the same addresses (host memory only).
    Memcpy,
}

/// One transfer, as a rank sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub direction: Direction,
    pub bytes: usize,
    pub role: Role,
}

/// What a rank holds while it is measured.
pub(super) struct Session<'a> {
    pub communicator: &'a Communicator,
    pub stream: Stream,
    source: SymmetricBuffer<u8>,
    destination: SymmetricBuffer<u8>,
    clock: Clock<'a>,
    patterns: Patterns,
}

impl<'a> Session<'a> {
    /// Allocates for transfers of at most `largest` bytes and fills the sources. Collective.
    pub(super) fn new(communicator: &'a Communicator, largest: u64) -> Result<Self> {
        let rank = communicator.rank();
        let elements = usize::try_from(largest).unwrap_or(usize::MAX - GUARD) + GUARD;
        let stream = communicator.stream()?;
        let source = communicator.allocate::<u8>(&[elements])?;
        let destination = communicator.allocate::<u8>(&[elements])?;
        let patterns = Patterns::new();
        patterns.fill(rank, &source, &stream)?;
        communicator.host_barrier()?;
        Ok(Self {
            stream,
            source,
            destination,
            clock: Clock::new(communicator, 1)?,
            patterns,
            communicator,
        })
    }

    /// Enqueues the transfer, if this rank is to move it.
    fn issue(&self, on: &Queue, case: &Case, means: Means) -> Result<()> {
        let Some(peer) = case.role.peer.filter(|_| case.role.moves) else {
            return Ok(());
        };
        let to = self.destination.slice(..case.bytes)?;
        let from = self.source.slice(..case.bytes)?;
        match (means, case.direction) {
            (Means::Transfer(options), Direction::Push) => on.with(&options).put(peer, to, from)?,
            (Means::Transfer(options), Direction::Pull) => on.with(&options).get(peer, to, from)?,
            (Means::Memcpy, direction) => self.memcpy(peer, direction, case.bytes)?,
        }
        Ok(())
    }

    fn memcpy(&self, peer: usize, direction: Direction, bytes: usize) -> Result<()> {
        let (to, from) = match direction {
            Direction::Push => (self.destination.peer(peer)?, self.source.local()),
            Direction::Pull => (self.destination.local(), self.source.peer(peer)?),
        };
        // SAFETY: memory of the host, mapped while the buffers live, `bytes` within both, of two
        // different allocations. Peers write these addresses only with the very same bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes) };
        Ok(())
    }

    /// Transfers without timing them.
    pub(super) fn warm_up(&self, case: &Case, means: Means, count: u32) -> Result<()> {
        for _ in 0..count {
            self.issue(&self.stream, case, means)?;
        }
        Ok(())
    }

    /// `repeats` transfers back to back: nanoseconds for each. Takes part in the barrier only, and
    /// returns a meaningless time, where this rank stands by.
    pub(super) fn looped(&self, case: &Case, means: Means, repeats: u32) -> Result<f64> {
        let total = self.clock.timed(&self.stream, &|| {
            (0..repeats).try_for_each(|_| self.issue(&self.stream, case, means))
        })?;
        Ok(total / f64::from(repeats))
    }

    /// A graph of `repeats` transfers; `None` where this rank stands by.
    pub(super) fn graph(&self, case: &Case, means: Means, repeats: u32) -> Result<Option<Graph>> {
        if !case.role.moves {
            return Ok(None);
        }
        let mut outcome = Ok(());
        let graph = self.communicator.stream()?.capture(|queue| {
            outcome = (0..repeats).try_for_each(|_| self.issue(queue, case, means));
            Ok(())
        })?;
        outcome?;
        Ok(Some(graph))
    }

    /// Replays a graph of `repeats` transfers: nanoseconds for each.
    pub(super) fn replayed(&self, graph: Option<&Graph>, repeats: u32) -> Result<f64> {
        let total = self.clock.timed(&self.stream, &|| self.launch(graph))?;
        Ok(total / f64::from(repeats))
    }

    fn launch(&self, graph: Option<&Graph>) -> Result<()> {
        match graph {
            Some(graph) => Ok(self.stream.launch_graph(graph)?),
            None => Ok(()),
        }
    }

    /// One transfer at a time, each waited for: nanoseconds from the call to its end, by the host's
    /// clock. Nothing where this rank stands by.
    pub(super) fn single(&self, case: &Case, means: Means, samples: u32) -> Result<Vec<f64>> {
        self.clock.start_together(&self.stream)?;
        self.stream.synchronize()?;
        if !case.role.moves {
            return Ok(Vec::new());
        }
        let mut times = Vec::with_capacity(samples as usize);
        for _ in 0..samples {
            let start = Instant::now();
            self.issue(&self.stream, case, means)?;
            self.stream.synchronize()?;
            times.push(start.elapsed().as_nanos() as f64);
        }
        Ok(times)
    }

    /// Transfers once into poisoned memory: the bytes that are wrong at this rank, guard included.
    pub(super) fn check(&self, case: &Case, means: Means) -> Result<u64> {
        self.check_after(case, || self.issue(&self.stream, case, means))
    }

    /// As [`Session::check`], by a replay.
    pub(super) fn check_replay(&self, case: &Case, graph: Option<&Graph>) -> Result<u64> {
        self.check_after(case, || self.launch(graph))
    }

    fn check_after(&self, case: &Case, transfer: impl FnOnce() -> Result<()>) -> Result<u64> {
        // No peer moves bytes before the barrier.
        let (destination, poisoned) = (&self.destination, case.bytes + GUARD);
        poison(
            self.communicator,
            destination,
            poisoned,
            POISON,
            &self.stream,
        )?;
        self.clock.start_together(&self.stream)?;
        transfer()?;
        self.stream.barrier()?;
        self.stream.synchronize()?;
        match case.role.peer.filter(|_| case.role.receives) {
            Some(peer) => {
                self.patterns
                    .wrong_bytes(peer, &self.destination, case.bytes, &self.stream)
            }
            None => Ok(0),
        }
    }

    /// Frees the buffers. Collective.
    pub(super) fn finish(self) -> Result<()> {
        self.source.free()?;
        self.destination.free()?;
        Ok(())
    }
}
