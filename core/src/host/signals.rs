//! Signals, waits for signals, and the barrier made of both.

use super::progress::{Bounds, Pending, PollOutcome, SignalWord, Step, fill_record, look, word_at};
use crate::backend::abi::*;
use crate::epoch;
use std::sync::atomic::Ordering;

const SIGNAL_WAIT: u32 = 1;
const BARRIER: u32 = 2;

/// Advances a wait for a signal.
///
/// # Safety
/// All memory in `wait` is live.
pub(crate) unsafe fn advance_wait(
    wait: &SignalWait,
    placement: SignalPlacementCode,
    pending: &mut Option<Pending>,
) -> Step {
    let pending = pending.get_or_insert_with(|| {
        Pending::new(if wait.epoch.0 == 0 {
            wait.value
        } else {
            // SAFETY: the counter is live, as this function requires.
            epoch::next(unsafe { word_at(wait.epoch) })
        })
    });
    // A wait in host memory stands for a GPU stream's hardware wait, which has no deadline: the library's watcher
    // releases it. A deadline that is given still holds.
    let unbounded = placement == SignalPlacementCode::HOST && wait.watch.deadline_ns == 0;
    let mut bounds = Bounds::of(&wait.watch);
    if unbounded {
        bounds.deadline = None;
    }
    // SAFETY: the word and the abort word are live, as this function requires.
    match unsafe { look(wait.word, &bounds, pending) } {
        PollOutcome::Reached => Step::Done,
        PollOutcome::Blocked(sleep) => Step::Blocked(sleep),
        PollOutcome::GaveUp { seen, reason } => {
            let record = WaitRecord {
                kind: SIGNAL_WAIT,
                rank: wait.watch.rank,
                peer: wait.peer,
                slot: wait.slot,
                expected: pending.expected,
                seen,
                reason,
                elapsed_ns: pending.elapsed_ns(),
                ..WaitRecord::default()
            };
            // SAFETY: the record is live, as this function requires.
            unsafe { fill_record(wait.watch.record, &record) };
            Step::Done
        }
    }
}

/// Gives a signal in its first step, then advances a wait.
///
/// # Safety
/// All memory in `target` and `wait` is live.
pub(crate) unsafe fn advance_step(
    target: &SignalTarget,
    wait: &SignalWait,
    pending: &mut Option<Pending>,
) -> Step {
    if pending.is_none() {
        // SAFETY: the signal's words are live, as this function requires.
        unsafe { give(target) };
    }
    // SAFETY: the wait's memory is live, as this function requires.
    unsafe { advance_wait(wait, SignalPlacementCode::DEVICE, pending) }
}

/// Advances a barrier: its first step signals every peer, then it waits for one peer after another.
///
/// # Safety
/// All memory in `barrier` is live; `world` is at most [`MAX_RANKS`].
pub(crate) unsafe fn advance_barrier(barrier: &Barrier, pending: &mut Option<Pending>) -> Step {
    let me = barrier.watch.rank;
    let pending = pending.get_or_insert_with(|| {
        // SAFETY: the counter is live, as this function requires.
        let expected = epoch::next(unsafe { word_at(barrier.epoch) });
        for peer in (0..barrier.world).filter(|&peer| peer != me) {
            // SAFETY: the peers' words are live, as this function requires.
            unsafe { SignalWord::at(barrier.peers[peer as usize]) }.publish(expected);
        }
        Pending::new(expected)
    });
    let bounds = Bounds::of(&barrier.watch);
    while pending.peer < barrier.world {
        let peer = pending.peer;
        if peer != me {
            let word = DeviceAddress(barrier.own.0 + u64::from(peer) * SIGNAL_STRIDE);
            // SAFETY: the own words and the abort word are live, as this function requires.
            match unsafe { look(word, &bounds, pending) } {
                PollOutcome::Reached => {}
                PollOutcome::Blocked(sleep) => return Step::Blocked(sleep),
                PollOutcome::GaveUp { seen, reason } => {
                    let record = WaitRecord {
                        kind: BARRIER,
                        rank: me,
                        peer,
                        slot: barrier.slot,
                        expected: pending.expected,
                        seen,
                        reason,
                        elapsed_ns: pending.elapsed_ns(),
                        ..WaitRecord::default()
                    };
                    // SAFETY: the record is live, as this function requires.
                    unsafe { fill_record(barrier.watch.record, &record) };
                    return Step::Done;
                }
            }
        }
        pending.peer += 1;
    }
    Step::Done
}

/// Gives a signal; does nothing if `target.word` is 0.
///
/// # Safety
/// The signal's words are live.
#[inline]
pub(crate) unsafe fn give(target: &SignalTarget) {
    if target.word.0 == 0 {
        return;
    }
    // SAFETY: the word is live, as this function requires.
    let word = unsafe { SignalWord::at(target.word) };
    if target.epoch.0 == 0 {
        word.publish(target.value);
    } else {
        // SAFETY: the counter is live, as this function requires.
        word.raise(epoch::next(unsafe { word_at(target.epoch) }));
    }
}

/// Copies an epoch to an arrival word.
///
/// # Safety
/// Both words are live.
pub(crate) unsafe fn arrive(word: DeviceAddress, epoch: DeviceAddress) {
    // SAFETY: both words are live, as this function requires.
    unsafe {
        let value = word_at(epoch).load(Ordering::Relaxed);
        SignalWord::at(word).publish(value);
    }
}
