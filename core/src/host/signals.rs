//! Giving signals, waiting for them, and the barrier made of both.

use super::HostBackend;
use super::events::Event;
use super::operation::{Operation, Step};
use super::waiting::{LONGEST_SLEEP, SignalWord, Sleep, long_at, word_at};
use crate::backend::abi::*;
use crate::backend::{CallResult, Collectives, Failure, Signals};
use crate::epoch::{self, Outlook};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SIGNAL_WAIT: u32 = 1;
const BARRIER: u32 = 2;
const DEADLINE_PASSED: u32 = 1;
const ABORT_WORD_SET: u32 = 2;

/// A wait that has begun.
pub(super) struct Pending {
    expected: u32,
    /// The barrier's next peer to wait for.
    peer: u32,
    /// When it was first seen unsatisfied: a satisfied wait reads no clock.
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
    fn new(expected: u32) -> Self {
        Self {
            expected,
            peer: 0,
            since: None,
            graced: false,
            asleep_on: None,
        }
    }

    /// For how long it has waited.
    fn elapsed_ns(&self) -> u64 {
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
struct Bounds {
    abort: DeviceAddress,
    deadline: Option<Duration>,
}

enum Look {
    Reached,
    Blocked(Sleep),
    GaveUp { seen: u32, reason: u32 },
}

/// Looks at a word once.
///
/// # Safety
/// The word and the abort word are live.
unsafe fn look(word: DeviceAddress, bounds: &Bounds, pending: &mut Pending) -> Look {
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
            let limit = bounds.deadline.map_or(LONGEST_SLEEP, |deadline| {
                deadline.saturating_sub(pending.since.get_or_insert_with(Instant::now).elapsed())
            });
            if limit.is_zero() {
                Look::GaveUp {
                    seen,
                    reason: DEADLINE_PASSED,
                }
            } else {
                return Look::Blocked(Sleep { word, seen, limit });
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

/// Fills the record, if there is one and nobody has.
///
/// # Safety
/// `address` is 0 or that of a live [`WaitRecord`].
unsafe fn fill_record(address: DeviceAddress, record: &WaitRecord) {
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
        _target: &SignalTarget,
        _wait: &SignalWait,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("signal_step")
    }

    unsafe fn word_update(&self, _operation: &WordOperation, _stream: RawStream) -> CallResult<()> {
        refuse("word_update")
    }

    unsafe fn word_wait(&self, _wait: &WordWait, _stream: RawStream) -> CallResult<()> {
        refuse("word_wait")
    }
}

impl Collectives for HostBackend {
    unsafe fn barrier(&self, barrier: &Barrier, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "barrier")? };
        if barrier.world as usize > MAX_RANKS {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "barrier",
                format!(
                    "{} ranks are more than the {MAX_RANKS} that a node group can have",
                    barrier.world
                ),
            ));
        }
        // SAFETY: the caller keeps the words alive until the stream has passed this point; `world`
        // was checked.
        unsafe { stream.submit(Operation::Barrier(*barrier)) }
    }
    fn collective_row(&self, _index: u32) -> CallResult<CollectiveRow> {
        Ok(CollectiveRow::default())
    }

    fn resident_blocks(
        &self,
        _kernel: CollectiveKernel,
        _element: ElementType,
        _threads: u32,
    ) -> CallResult<u32> {
        Ok(0)
    }

    unsafe fn collective_move(
        &self,
        _arguments: &MoveArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_move")
    }

    unsafe fn collective_packets(
        &self,
        _arguments: &PacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_packets")
    }

    unsafe fn collective_reduce(
        &self,
        _arguments: &ReduceArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce")
    }

    unsafe fn collective_reduce_packets(
        &self,
        _arguments: &ReducePacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_packets")
    }

    unsafe fn collective_exchange(
        &self,
        _arguments: &ExchangeArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_exchange")
    }

    fn vendor_description(&self) -> CallResult<VendorDescription> {
        refuse("vendor_description")
    }

    fn vendor_identifier(&self) -> CallResult<VendorIdentifier> {
        refuse("vendor_identifier")
    }

    fn vendor_create(
        &self,
        _identifier: &VendorIdentifier,
        _rank: u32,
        _world: u32,
    ) -> CallResult<RawVendor> {
        refuse("vendor_create")
    }

    unsafe fn vendor_ready(&self, _vendor: RawVendor) -> CallResult<u32> {
        refuse("vendor_ready")
    }

    unsafe fn vendor_call(
        &self,
        _vendor: RawVendor,
        _call: &VendorCall,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("vendor_call")
    }

    fn vendor_group(&self, _open: u32) -> CallResult<()> {
        refuse("vendor_group")
    }

    unsafe fn vendor_register(
        &self,
        _vendor: RawVendor,
        _address: DeviceAddress,
        _bytes: u64,
    ) -> CallResult<u64> {
        refuse("vendor_register")
    }

    unsafe fn vendor_deregister(&self, _vendor: RawVendor, _window: u64) -> CallResult<()> {
        refuse("vendor_deregister")
    }

    unsafe fn vendor_abort(&self, _vendor: RawVendor) -> CallResult<()> {
        refuse("vendor_abort")
    }

    unsafe fn vendor_destroy(&self, _vendor: RawVendor) -> CallResult<()> {
        refuse("vendor_destroy")
    }
}

fn refuse<T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "this backend does not have it yet",
    ))
}
