//! Giving and awaiting signals, alone and as a barrier.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use symmem_core::backend::abi::{
    Barrier, MAX_RANKS, SIGNAL_STRIDE, SignalTarget, SignalWait, WaitRecord, Watch,
};

use super::{Launch, touched};
use crate::error::{Code, Result};
use crate::report::violation;
use crate::work::{Runner, Word};

/// Returns the value to give or to wait for: the next epoch from the device's counter, or the host's number if the host
/// counts.
fn next(runner: &Runner, epoch: u64, value: u32) -> Result<u32> {
    if epoch == 0 {
        return Ok(value);
    }
    // A counter belongs to one grid at a time, so no other grid adds in between.
    Ok(runner
        .word(epoch)?
        .atomic()
        .fetch_add(1, Ordering::AcqRel)
        .wrapping_add(1))
}

pub(super) fn give(runner: &Runner, target: &SignalTarget) -> Result {
    if target.word.0 == 0 {
        return Ok(());
    }
    let word = runner.word(target.word.0)?;
    let value = next(runner, target.epoch.0, target.value)?;
    word.atomic().store(value, Ordering::Release);
    Ok(())
}

pub(super) fn signal(launch: &Launch, runner: &Runner) -> Result {
    let target: SignalTarget = launch.arguments();
    if launch.blocks.iter().product::<u32>() != 1 {
        violation("symmem_signal takes one block: each would give the signal".into());
    }
    give(runner, &target)
}

pub(super) fn signal_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    target_ranges(&launch.arguments())
}

// ---- waits ----

/// A wait with its limits: timeout and abort flag.
pub(super) struct Bounded<'a> {
    runner: &'a Runner,
    watch: Watch,
    abort: Option<Word>,
    aborted: Option<Word>,
    record: Option<[Word; 10]>,
    pub started: Instant,
    /// 1 is a signal wait, 2 a barrier.
    kind: u32,
    slot: u32,
}

impl<'a> Bounded<'a> {
    pub fn new(runner: &'a Runner, watch: Watch, kind: u32, slot: u32) -> Result<Self> {
        let word = |address: u64| (address != 0).then(|| runner.word(address)).transpose();
        let abort = word(watch.abort.0)?;
        let aborted = word(watch.aborted.0)?;
        let record = match watch.record.0 {
            0 => None,
            base => {
                const { assert!(size_of::<WaitRecord>() == 10 * 4) };
                let mut words = Vec::new();
                for index in 0..10 {
                    words.push(runner.word(base + 4 * index)?);
                }
                words.try_into().ok()
            }
        };
        Ok(Self {
            runner,
            watch,
            abort,
            aborted,
            record,
            started: Instant::now(),
            kind,
            slot,
        })
    }

    /// Waits until `reached` accepts the word. Returns false, and writes a record, if the wait gave up.
    pub fn until(
        &self,
        word: &Word,
        reached: impl Fn(u32) -> bool,
        expected: u32,
        peer: u32,
    ) -> Result<bool> {
        let mut rounds = 0;
        loop {
            let seen = word.atomic().load(Ordering::Acquire);
            if reached(seen) {
                return Ok(true);
            }
            let aborted = self
                .abort
                .as_ref()
                .is_some_and(|w| w.atomic().load(Ordering::Acquire) != 0);
            let late = self.started.elapsed() >= Duration::from_nanos(self.watch.deadline_ns);
            if aborted || late {
                if let (true, Some(noted)) = (aborted, &self.aborted) {
                    noted.atomic().store(1, Ordering::Relaxed);
                }
                let reason = if aborted { 2 } else { 1 };
                let elapsed = self.started.elapsed().as_nanos() as u64;
                self.give_up([
                    self.kind,
                    self.watch.rank,
                    peer,
                    self.slot,
                    expected,
                    seen,
                    reason,
                    elapsed as u32,
                    (elapsed >> 32) as u32,
                ]);
                return Ok(false);
            }
            self.runner.pause(&mut rounds)?;
        }
    }

    /// Writes the record unless another wait already has.
    fn give_up(&self, values: [u32; 9]) {
        let Some([state, fields @ ..]) = &self.record else {
            return;
        };
        let state = state.atomic();
        if state
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            for (field, value) in fields.iter().zip(values) {
                field.atomic().store(value, Ordering::Relaxed);
            }
            state.store(2, Ordering::Release);
        }
    }
}

fn reached(expected: u32) -> impl Fn(u32) -> bool {
    move |seen| seen.wrapping_sub(expected) as i32 >= 0
}

pub(super) fn wait(launch: &Launch, runner: &Runner) -> Result {
    wait_for(runner, &launch.arguments()).map(drop)
}

/// Waits for a signal. Returns false if the wait gave up, which is not an error.
pub(super) fn wait_for(runner: &Runner, wait: &SignalWait) -> Result<bool> {
    let bounded = Bounded::new(runner, wait.watch, 1, wait.slot)?;
    let word = runner.polled(wait.word.0)?;
    let expected = next(runner, wait.epoch.0, wait.value)?;
    bounded.until(&word, reached(expected), expected, wait.peer)
}

pub(super) fn wait_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    wait_ranges_of(&launch.arguments())
}

pub(super) fn wait_ranges_of(wait: &SignalWait) -> Vec<(u64, u64)> {
    let mut ranges = watch_ranges(&wait.watch);
    ranges.extend(touched(&[wait.word.0, wait.epoch.0]));
    ranges
}

pub(super) fn barrier(launch: &Launch, runner: &Runner) -> Result {
    let barrier: Barrier = launch.arguments();
    let (world, rank) = (barrier.world as usize, barrier.watch.rank as usize);
    if world > MAX_RANKS || rank >= world {
        violation(format!("a barrier of {world} ranks, here as rank {rank}"));
        return Err(Code::ILLEGAL_ADDRESS);
    }
    let bounded = Bounded::new(runner, barrier.watch, 2, barrier.slot)?;
    let epoch = next(runner, barrier.epoch.0, 0)?;
    for peer in barrier.peers[..world]
        .iter()
        .enumerate()
        .filter(|(peer, _)| *peer != rank)
    {
        runner
            .word(peer.1.0)?
            .atomic()
            .store(epoch, Ordering::Release);
    }
    for peer in (0..world).filter(|peer| *peer != rank) {
        let word = runner.polled(barrier.own.0 + peer as u64 * SIGNAL_STRIDE)?;
        if !bounded.until(&word, reached(epoch), epoch, peer as u32)? {
            break;
        }
    }
    Ok(())
}

pub(super) fn barrier_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let barrier: Barrier = launch.arguments();
    let mut ranges = watch_ranges(&barrier.watch);
    ranges.extend(touched(&[barrier.epoch.0]));
    ranges.push((barrier.own.0, u64::from(barrier.world) * SIGNAL_STRIDE));
    let peers = barrier.peers.map(|peer| peer.0);
    ranges.extend(touched(&peers[..(barrier.world as usize).min(MAX_RANKS)]));
    ranges
}

pub(super) fn target_ranges(target: &SignalTarget) -> Vec<(u64, u64)> {
    touched(&[target.word.0, target.epoch.0, target.arrivals.0]).collect()
}

pub(super) fn watch_ranges(watch: &Watch) -> Vec<(u64, u64)> {
    touched(&[watch.abort.0, watch.record.0, watch.aborted.0]).collect()
}
