//! The kernel of `examples/kernels/ring.cu`.

use std::sync::atomic::Ordering;

use symmem_core::backend::abi::{
    DeviceAddress, Handle, MAX_RANKS, SIGNAL_STRIDE, SignalTarget, SignalWait,
};

use super::signals::{give, target_ranges, wait_for, wait_ranges_of};
use super::{Launch, Plain};
use crate::error::{Code, Result};
use crate::memory::Engine;
use crate::report::violation;
use crate::work::Runner;

/// Its arguments.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RingArguments {
    inbox: Handle,
    outbox: u64,
    result: u64,
    count: u64,
}
// SAFETY: a repr(C) struct of integers.
unsafe impl Plain for RingArguments {}

impl RingArguments {
    /// Returns the signal to the next rank and the wait for the previous rank.
    fn signals(&self) -> (SignalTarget, SignalWait) {
        let (rank, world) = (self.inbox.rank, self.inbox.world);
        let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
        let at = |mut base: DeviceAddress, offset: u64| {
            base.0 += offset;
            base
        };
        let counter = |base, peer: u32| at(base, 4 * u64::from(peer));
        let word = |at_rank: u32, giver: u32| {
            let base = self.inbox.signals[at_rank as usize];
            at(base, u64::from(giver) * SIGNAL_STRIDE)
        };
        let target = SignalTarget {
            word: word(next, rank),
            epoch: counter(self.inbox.given, next),
            arrivals: counter(self.inbox.arrivals, next),
            ..SignalTarget::default()
        };
        let wait = SignalWait {
            word: word(rank, previous),
            epoch: counter(self.inbox.waited, previous),
            watch: self.inbox.watch,
            peer: previous,
            slot: self.inbox.channel,
            ..SignalWait::default()
        };
        (target, wait)
    }

    /// Returns the inboxes of this rank and the next.
    fn inboxes(&self) -> (u64, u64) {
        let next = (self.inbox.rank + 1) % self.inbox.world;
        let base = |rank: u32| self.inbox.bases[rank as usize].0;
        (base(self.inbox.rank), base(next))
    }

    fn is_sane(&self) -> bool {
        let Handle {
            rank, world, bytes, ..
        } = self.inbox;
        rank < world && world as usize <= MAX_RANKS && self.count.checked_mul(4) <= Some(bytes)
    }
}

pub(super) fn ring(launch: &Launch, runner: &Runner) -> Result {
    let ring: RingArguments = launch.arguments();
    if !ring.is_sane() {
        let Handle {
            rank, world, bytes, ..
        } = ring.inbox;
        let count = ring.count;
        violation(format!(
            "a ring of {world} ranks, here as rank {rank}, of {count} words in {bytes} bytes"
        ));
        return Err(Code::ILLEGAL_ADDRESS);
    }
    let (own, next) = ring.inboxes();
    let (target, wait) = ring.signals();
    runner.copy(next, ring.outbox, 4 * ring.count, Engine::Kernel)?;
    give(runner, &target)?;
    if !wait_for(runner, &wait)? {
        return Ok(());
    }
    for index in 0..ring.count {
        let received = runner
            .word(own + 4 * index)?
            .atomic()
            .load(Ordering::Relaxed);
        let result = runner.word(ring.result + 4 * index)?;
        result
            .atomic()
            .store(received.wrapping_mul(2), Ordering::Relaxed);
    }
    Ok(())
}

pub(super) fn ring_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let ring: RingArguments = launch.arguments();
    if !ring.is_sane() {
        return Vec::new();
    }
    let (own, next) = ring.inboxes();
    let (target, wait) = ring.signals();
    let bytes = 4 * ring.count;
    let mut ranges = vec![
        (own, bytes),
        (next, bytes),
        (ring.outbox, bytes),
        (ring.result, bytes),
    ];
    ranges.extend(target_ranges(&target));
    ranges.extend(wait_ranges_of(&wait));
    ranges
}
