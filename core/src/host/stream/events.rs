//! Events: points in a stream's work, with the time at which they were reached.

use crate::backend::abi::{DeviceAddress, Status};
use crate::backend::{CallResult, Failure};
use crate::epoch;
use crate::host::progress::{Bounds, Look, Pending, SignalWord, Step, look};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Instant;

/// What reaches events: a queue of work, which a caller who asks for an event may help along.
pub(crate) trait Recorder: Send + Sync {
    /// Goes on with the queue as far as it goes without waiting for longer than a moment.
    fn help(&self);
}

/// A point in a stream's work. Its records are numbered, and the number reached is a signal word,
/// so that streams wait for an event as they wait for a peer.
pub(crate) struct Event {
    reached: SignalWord,
    /// The number of the last record asked for.
    recorded: AtomicU32,
    /// When it was last reached, in nanoseconds from `origin`.
    time: AtomicU64,
    origin: Instant,
    /// The queue that the last record is in, if there was one.
    recorder: Mutex<Option<Weak<dyn Recorder>>>,
}

impl Event {
    /// An event that measures time from `origin`.
    pub(crate) fn new(origin: Instant) -> Self {
        Self {
            reached: SignalWord {
                value: AtomicU32::new(0),
                sleepers: AtomicU32::new(0),
            },
            recorded: AtomicU32::new(0),
            time: AtomicU64::new(0),
            origin,
            recorder: Mutex::default(),
        }
    }

    /// Where a stream waits for it.
    fn address(&self) -> DeviceAddress {
        DeviceAddress((&raw const self.reached).expose_provenance() as u64)
    }

    /// Numbers a record that is about to be asked for.
    pub(crate) fn number(&self) -> u32 {
        epoch::next(&self.recorded)
    }

    /// The number of the last record asked for.
    pub(crate) fn last(&self) -> u32 {
        self.recorded.load(Ordering::Acquire)
    }

    /// Says in whose queue the last record is.
    pub(crate) fn set_recorder(&self, recorder: Weak<dyn Recorder>) {
        *self.recorder.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorder);
    }

    /// The stream has come to the record; without a number, to one that a replay makes.
    pub(crate) fn reach(&self, number: Option<u32>) {
        let number = number.unwrap_or_else(|| self.number());
        let time = self.origin.elapsed().as_nanos() as u64;
        self.time.store(time, Ordering::Relaxed);
        self.reached.raise(number);
    }

    /// Whether the last record has been reached. A caller who asks drives the stream itself.
    pub(crate) fn done(&self) -> bool {
        if self.is_reached() {
            return true;
        }
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = recorder.as_ref().and_then(Weak::upgrade);
        drop(recorder);
        if let Some(queue) = queue {
            queue.help();
        }
        self.is_reached()
    }

    pub(crate) fn is_reached(&self) -> bool {
        epoch::reached(self.reached.value.load(Ordering::Acquire), self.last())
    }

    /// Goes on with a wait for the numbered record. Nothing bounds it but the waits before that record, each
    /// of which is bounded.
    pub(crate) fn advance_wait(&self, number: u32, pending: &mut Option<Pending>) -> Step {
        let pending = pending.get_or_insert_with(|| Pending::new(number));
        let bounds = Bounds {
            abort: DeviceAddress::NULL,
            deadline: None,
        };
        // SAFETY: the event is live through this call, and there is no abort word.
        match unsafe { look(self.address(), &bounds, pending) } {
            Look::Blocked(sleep) => Step::Blocked(sleep),
            Look::Reached | Look::GaveUp { .. } => Step::Done,
        }
    }

    /// Nanoseconds from `start` to this event, both reached.
    pub(crate) fn since(&self, start: &Self) -> CallResult<u64> {
        for (name, event) in [("start", start), ("end", self)] {
            if event.last() == 0 || !event.is_reached() {
                return Err(Failure::new(
                    Status::INVALID_ARGUMENT,
                    "event_elapsed",
                    format!(
                        "the {name} event has not been recorded and reached; synchronise first"
                    ),
                ));
            }
        }
        let time = |event: &Self| event.time.load(Ordering::Relaxed);
        Ok(time(self).saturating_sub(time(start)))
    }
}
