//! One rank's buffers, stream and clock, with four ways to run a transfer: checked, looped, replayed, and as
//! single transfers.

use super::Result;
use super::clock::Clock;
use super::data::{GUARD, POISON, Patterns};
use super::pairing::Role;
use super::poison::poison;
use crate::report::Direction;
use std::time::Instant;
use symmem::{Communicator, Graph, Queue, Stream, SymmetricBuffer, TransferOptions};

/// The means of moving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferMethod {
    /// A put or get of symmem.
    Transfer(TransferOptions),
    /// `memcpy` by the calling thread between the same addresses (host memory only).
    Memcpy,
}

/// One transfer, with this rank's role in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub direction: Direction,
    pub bytes: usize,
    pub role: Role,
}

/// The buffers, stream and clock of one rank.
pub(super) struct Session<'a> {
    pub communicator: &'a Communicator,
    pub stream: Stream,
    source: SymmetricBuffer<u8>,
    destination: SymmetricBuffer<u8>,
    clock: Clock<'a>,
    patterns: Patterns,
}

impl<'a> Session<'a> {
    /// Allocates buffers for transfers of at most `largest` bytes and fills the sources. Collective.
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

    /// Enqueues the transfer, if this rank moves the bytes.
    fn issue(&self, on: &Queue, case: &Case, means: TransferMethod) -> Result<()> {
        let Some(peer) = case.role.peer.filter(|_| case.role.moves) else {
            return Ok(());
        };
        let to = self.destination.slice(..case.bytes)?;
        let from = self.source.slice(..case.bytes)?;
        match (means, case.direction) {
            (TransferMethod::Transfer(options), Direction::Push) => {
                on.with(&options).put(peer, to, from)?
            }
            (TransferMethod::Transfer(options), Direction::Pull) => {
                on.with(&options).get(peer, to, from)?
            }
            (TransferMethod::Memcpy, direction) => self.memcpy(peer, direction, case.bytes)?,
        }
        Ok(())
    }

    fn memcpy(&self, peer: usize, direction: Direction, bytes: usize) -> Result<()> {
        let (to, from) = match direction {
            Direction::Push => (self.destination.peer(peer)?, self.source.local()),
            Direction::Pull => (self.destination.local(), self.source.peer(peer)?),
        };
        // SAFETY: both ranges are host memory of two different allocations, mapped while the buffers live,
        // and `bytes` is within both. Peers write these addresses only with the same bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes) };
        Ok(())
    }

    /// Enqueues untimed transfers.
    pub(super) fn warm_up(&self, case: &Case, means: TransferMethod, count: u32) -> Result<()> {
        for _ in 0..count {
            self.issue(&self.stream, case, means)?;
        }
        Ok(())
    }

    /// Times `repeats` transfers back to back; returns nanoseconds per transfer. A rank that moves no bytes
    /// only takes part in the barrier, and its result is meaningless.
    pub(super) fn looped(&self, case: &Case, means: TransferMethod, repeats: u32) -> Result<f64> {
        let total = self.clock.timed(&self.stream, &|| {
            (0..repeats).try_for_each(|_| self.issue(&self.stream, case, means))
        })?;
        Ok(total / f64::from(repeats))
    }

    /// Captures a graph of `repeats` transfers; `None` if this rank moves no bytes.
    pub(super) fn graph(
        &self,
        case: &Case,
        means: TransferMethod,
        repeats: u32,
    ) -> Result<Option<Graph>> {
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

    /// Times a replay of a graph of `repeats` transfers; returns nanoseconds per transfer.
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

    /// Times single transfers on the host, each from the call to its completion, in nanoseconds. Returns
    /// nothing if this rank moves no bytes.
    pub(super) fn single(
        &self,
        case: &Case,
        means: TransferMethod,
        samples: u32,
    ) -> Result<Vec<f64>> {
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

    /// Transfers once into poisoned memory; returns the number of wrong bytes at this rank, guard included.
    pub(super) fn check(&self, case: &Case, means: TransferMethod) -> Result<u64> {
        self.check_after(case, || self.issue(&self.stream, case, means))
    }

    /// Like [`Session::check`], with a graph replay.
    pub(super) fn check_replay(&self, case: &Case, graph: Option<&Graph>) -> Result<u64> {
        self.check_after(case, || self.launch(graph))
    }

    fn check_after(&self, case: &Case, transfer: impl FnOnce() -> Result<()>) -> Result<u64> {
        // No peer moves bytes before the barrier below.
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
