//! Giving signals, waiting for them, and the barrier made of both.

use super::HostBackend;
use super::events::Event;
use super::operation::{Operation, Step};
use super::waiting::{LONGEST_SLEEP, SignalWord, Sleep, long_at, word_at};
use super::words;
use crate::backend::abi::*;
use crate::backend::{CallResult, Signals};
use crate::epoch::{self, Outlook};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SIGNAL_WAIT: u32 = 1;
const BARRIER: u32 = 2;
pub(super) const DEADLINE_PASSED: u32 = 1;
pub(super) const ABORT_WORD_SET: u32 = 2;

/// A wait that has begun, or a collective between two of its waits.
pub(super) struct Pending {
    /// The epoch waited for.
    pub(super) expected: u32,
    /// The next peer, or the next word, to wait for.
    pub(super) peer: u32,
    /// Which of a collective's steps it is in.
    pub(super) stage: u32,
    /// Whether that step has told the peers.
    begun: bool,
    /// Rounds of packets that are done.
    pub(super) round: u64,
    /// And how many there are.
    pub(super) rounds: u64,
    /// Whether it was seen unsatisfied.
    looked: bool,
    /// When it was seen so for the second time: one that is satisfied soon reads no clock.
    since: Option<Instant>,
    /// Whether the stream's thread has already left it to callers for a while.
    graced: bool,
    /// The word whose sleepers it is counted among.
    ///
    /// The wait is counted, not the thread, so that whoever completes it can take the count back
    /// while the memory is certainly alive.
    asleep_on: Option<DeviceAddress>,
}

impl Pending {
    pub(super) fn new(expected: u32) -> Self {
        Self {
            expected,
            peer: 0,
            stage: 0,
            begun: false,
            round: 0,
            rounds: 0,
            looked: false,
            since: None,
            graced: false,
            asleep_on: None,
        }
    }

    /// A collective of so many rounds.
    pub(super) fn of_rounds(rounds: u64) -> Self {
        Self {
            rounds,
            ..Self::new(0)
        }
    }

    /// True once a step: the first time.
    #[inline]
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }

    /// A step with this peer is over.
    #[inline]
    pub(super) fn next_peer(&mut self) {
        self.begun = false;
        self.peer += 1;
    }

    /// A step with all peers is over.
    #[inline]
    pub(super) fn end(&mut self) {
        self.begun = false;
        self.peer = 0;
    }

    /// What is left of a deadline, now that the wait was seen unsatisfied once more.
    pub(super) fn left_of(&mut self, deadline: Duration) -> Duration {
        if !std::mem::replace(&mut self.looked, true) {
            return deadline;
        }
        deadline.saturating_sub(self.since.get_or_insert_with(Instant::now).elapsed())
    }

    /// For how long it has waited.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.since
            .map_or(0, |since| since.elapsed().as_nanos() as u64)
    }

    /// True once: the first time that the stream's thread finds the wait unsatisfied.
    pub(super) fn grant_grace(&mut self) -> bool {
        !std::mem::replace(&mut self.graced, true)
    }

    /// Announces a sleep on `word`.
    ///
    /// # Safety
    /// `word` is the live word that this wait waits for.
    pub(super) unsafe fn announce_sleep(&mut self, word: DeviceAddress) {
        if self.asleep_on.is_none() {
            // SAFETY: the caller's word.
            epoch::register_sleeper(unsafe { &SignalWord::at(word).sleepers });
            self.asleep_on = Some(word);
        }
    }

    /// Takes the announcement back. The giver has woken the sleeper; who gives up must do it.
    ///
    /// # Safety
    /// The word is live, as it is until the wait is over.
    unsafe fn end_sleep(&mut self, gave_up: bool) {
        if let Some(word) = self.asleep_on.take() {
            // SAFETY: the caller's word.
            let word = unsafe { SignalWord::at(word) };
            epoch::unregister_sleeper(&word.sleepers);
            if gave_up {
                word.wake();
            }
        }
    }
}

/// What bounds a wait. A null abort word is not read.
pub(super) struct Bounds {
    pub(super) abort: DeviceAddress,
    pub(super) deadline: Option<Duration>,
}

/// What a wait finds when it looks.
pub(super) enum Look {
    Reached,
    Blocked(Sleep),
    GaveUp { seen: u32, reason: u32 },
}

/// Looks at a word once.
///
/// # Safety
/// The word and the abort word are live.
#[inline]
pub(super) unsafe fn look(word: DeviceAddress, bounds: &Bounds, pending: &mut Pending) -> Look {
    // SAFETY: the caller's word.
    let signal = unsafe { SignalWord::at(word) };
    // SAFETY: as above, where there is one.
    let abort = (bounds.abort.0 != 0).then(|| unsafe { word_at(bounds.abort) });
    let look = match epoch::look(&signal.value, pending.expected, abort) {
        Outlook::Reached => Look::Reached,
        Outlook::Aborted { seen } => Look::GaveUp {
            seen,
            reason: ABORT_WORD_SET,
        },
        Outlook::Waiting { seen } => {
            let limit = bounds
                .deadline
                .map_or(LONGEST_SLEEP, |deadline| pending.left_of(deadline));
            if limit.is_zero() {
                Look::GaveUp {
                    seen,
                    reason: DEADLINE_PASSED,
                }
            } else {
                return Look::Blocked(Sleep {
                    word,
                    seen,
                    limit,
                    counted: true,
                });
            }
        }
    };
    // SAFETY: the word is live.
    unsafe { pending.end_sleep(matches!(look, Look::GaveUp { .. })) };
    look
}

/// Goes on with a wait for a signal.
///
/// # Safety
/// All memory that it names is live.
pub(super) unsafe fn advance_wait(
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
pub(super) unsafe fn advance_step(
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
pub(super) unsafe fn advance_barrier(barrier: &Barrier, pending: &mut Option<Pending>) -> Step {
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

/// Goes on with a wait for an event. Nothing bounds it but the waits before that event, each of
/// which is bounded.
pub(super) fn advance_event(event: &Event, number: u32, pending: &mut Option<Pending>) -> Step {
    let pending = pending.get_or_insert_with(|| Pending::new(number));
    let bounds = Bounds {
        abort: DeviceAddress::NULL,
        deadline: None,
    };
    // SAFETY: the event is live through this call, and there is no abort word.
    match unsafe { look(event.address(), &bounds, pending) } {
        Look::Blocked(sleep) => Step::Blocked(sleep),
        Look::Reached | Look::GaveUp { .. } => Step::Done,
    }
}

/// Gives a signal, if there is one to give.
///
/// # Safety
/// Its words are live.
#[inline]
pub(super) unsafe fn give(target: &SignalTarget) {
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
pub(super) unsafe fn arrive(word: DeviceAddress, epoch: DeviceAddress) {
    // SAFETY: the caller's word.
    unsafe {
        let value = word_at(epoch).load(Ordering::Relaxed);
        SignalWord::at(word).publish(value);
    }
}

/// Fills the record, if there is one and nobody has.
///
/// # Safety
/// `address` is 0 or that of a live [`WaitRecord`].
pub(super) unsafe fn fill_record(address: DeviceAddress, record: &WaitRecord) {
    if address.0 == 0 {
        return;
    }
    // SAFETY: the caller's word; the record is made of 32-bit words, of which this is the first.
    let state = unsafe { word_at(address) };
    if !epoch::claim(state) {
        return;
    }
    let fields = [
        record.kind,
        record.rank,
        record.peer,
        record.slot,
        record.expected,
        record.seen,
        record.reason,
    ];
    const { assert!(size_of::<WaitRecord>() == 8 * 4 + 8) };
    for (index, field) in fields.into_iter().enumerate() {
        let word = DeviceAddress(address.0 + 4 * (index as u64 + 1));
        // SAFETY: within the record, as asserted above.
        unsafe { word_at(word) }.store(field, Ordering::Relaxed);
    }
    let elapsed = DeviceAddress(address.0 + std::mem::offset_of!(WaitRecord, elapsed_ns) as u64);
    // SAFETY: as above.
    unsafe { long_at(elapsed) }.store(record.elapsed_ns, Ordering::Relaxed);
    epoch::complete(state);
}

const FROZEN: &str = "a host signal's value would be the same at every replay; use a device signal";

impl Signals for HostBackend {
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        placement: SignalPlacement,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "signal_give")? };
        if placement == SignalPlacement::HOST {
            stream.refuse_capture("signal_give", FROZEN)?;
        }
        // SAFETY: the caller keeps the words alive until the stream has passed this point.
        unsafe { stream.submit(Operation::Give(*target)) }
    }

    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        placement: SignalPlacement,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "signal_wait")? };
        if placement == SignalPlacement::HOST {
            stream.refuse_capture("signal_wait", FROZEN)?;
        }
        // SAFETY: the caller keeps the words alive until the stream has passed this point.
        unsafe { stream.submit(Operation::Wait(*wait, placement)) }
    }

    unsafe fn signal_step(
        &self,
        target: &SignalTarget,
        wait: &SignalWait,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "signal_step")? };
        // SAFETY: the caller keeps the words alive until the stream has passed this point.
        unsafe { stream.submit(Operation::Step(*target, *wait)) }
    }

    unsafe fn word_update(&self, operation: &WordOperation, stream: RawStream) -> CallResult<()> {
        words::check_update(operation)?;
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "word_update")? };
        // SAFETY: the caller keeps the words alive until the stream has passed this point.
        unsafe { stream.submit(Operation::UpdateWord(*operation)) }
    }

    unsafe fn word_wait(&self, wait: &WordWait, stream: RawStream) -> CallResult<()> {
        words::check_wait(wait)?;
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "word_wait")? };
        // SAFETY: the caller keeps the words alive until the stream has passed this point.
        unsafe { stream.submit(Operation::WaitForWords(*wait)) }
    }
}
