//! Giving signals, waiting for them, and the barrier made of both.

use super::progress::{Bounds, Look, Pending, SignalWord, Step, fill_record, look, word_at};
use crate::backend::abi::*;
use crate::epoch;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SIGNAL_WAIT: u32 = 1;
const BARRIER: u32 = 2;

/// Goes on with a wait for a signal.
///
/// # Safety
/// All memory that it names is live.
pub(crate) unsafe fn advance_wait(
    wait: &SignalWait,
    placement: SignalPlacement,
    pending: &mut Option<Pending>,
) -> Step {
    let pending = pending.get_or_insert_with(|| {
        Pending::new(if wait.epoch.0 == 0 {
            wait.value
        } else {
            // SAFETY: the caller's word.
            epoch::next(unsafe { word_at(wait.epoch) })
        })
    });
    // A stream's hardware wait has no deadline of its own: core's watcher releases it. Where one is
    // given it holds all the same.
    let unbounded = placement == SignalPlacement::HOST && wait.watch.deadline_ns == 0;
    let bounds = Bounds {
        abort: wait.watch.abort,
        deadline: (!unbounded).then(|| Duration::from_nanos(wait.watch.deadline_ns)),
    };
    // SAFETY: the caller's word.
    match unsafe { look(wait.word, &bounds, pending) } {
        Look::Reached => Step::Done,
        Look::Blocked(sleep) => Step::Blocked(sleep),
        Look::GaveUp { seen, reason } => {
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
            // SAFETY: the caller's word.
            unsafe { fill_record(wait.watch.record, &record) };
            Step::Done
        }
    }
}

/// Gives a signal at its first step, then goes on with a wait.
///
/// # Safety
/// All memory that both name is live.
pub(crate) unsafe fn advance_step(
    target: &SignalTarget,
    wait: &SignalWait,
    pending: &mut Option<Pending>,
) -> Step {
    if pending.is_none() {
        // SAFETY: the caller's word.
        unsafe { give(target) };
    }
    // SAFETY: the caller's word.
    unsafe { advance_wait(wait, SignalPlacement::DEVICE, pending) }
}

/// Goes on with a barrier: at its first step tells every peer, then waits for one after the other.
///
/// # Safety
/// All memory that it names is live; `world` is at most [`MAX_RANKS`].
pub(crate) unsafe fn advance_barrier(barrier: &Barrier, pending: &mut Option<Pending>) -> Step {
    let me = barrier.watch.rank;
    let pending = pending.get_or_insert_with(|| {
        // SAFETY: the caller's word.
        let expected = epoch::next(unsafe { word_at(barrier.epoch) });
        for peer in (0..barrier.world).filter(|&peer| peer != me) {
            // SAFETY: the caller's word.
            unsafe { SignalWord::at(barrier.peers[peer as usize]) }.publish(expected);
        }
        Pending::new(expected)
    });
    let bounds = Bounds {
        abort: barrier.watch.abort,
        deadline: Some(Duration::from_nanos(barrier.watch.deadline_ns)),
    };
    while pending.peer < barrier.world {
        let peer = pending.peer;
        if peer != me {
            let word = DeviceAddress(barrier.own.0 + u64::from(peer) * SIGNAL_STRIDE);
            // SAFETY: the caller's word.
            match unsafe { look(word, &bounds, pending) } {
                Look::Reached => {}
                Look::Blocked(sleep) => return Step::Blocked(sleep),
                Look::GaveUp { seen, reason } => {
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
                    // SAFETY: the caller's word.
                    unsafe { fill_record(barrier.watch.record, &record) };
                    return Step::Done;
                }
            }
        }
        pending.peer += 1;
    }
    Step::Done
}

/// Gives a signal, if there is one to give.
///
/// # Safety
/// Its words are live.
#[inline]
pub(crate) unsafe fn give(target: &SignalTarget) {
    if target.word.0 == 0 {
        return;
    }
    // SAFETY: the caller's word.
    let word = unsafe { SignalWord::at(target.word) };
    if target.epoch.0 == 0 {
        word.publish(target.value);
    } else {
        // SAFETY: the caller's word.
        word.raise(epoch::next(unsafe { word_at(target.epoch) }));
    }
}

/// Copies an epoch to a word.
///
/// # Safety
/// Both are live.
pub(crate) unsafe fn arrive(word: DeviceAddress, epoch: DeviceAddress) {
    // SAFETY: the caller's word.
    unsafe {
        let value = word_at(epoch).load(Ordering::Relaxed);
        SignalWord::at(word).publish(value);
    }
}
