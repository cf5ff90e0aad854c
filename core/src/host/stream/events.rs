//! Events: points in a stream's work, with the times at which they were reached.

use crate::backend::abi::{DeviceAddress, Status};
use crate::backend::{CallResult, Failure};
use crate::epoch;
use crate::host::progress::{Bounds, Pending, PollOutcome, SignalWord, Step, look};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Instant;

/// The queue that will reach an event; a caller that asks for the event can advance it.
pub(crate) trait Recorder: Send + Sync {
    /// Advances the queue as far as possible, waiting at most for a moment.
    fn help(&self);
}

/// A point in a stream's work. Its records are numbered, and the number reached is a signal word, so that a stream
/// waits for an event as it waits for a peer.
pub(crate) struct Event {
    reached: SignalWord,
    /// Number of the last record enqueued.
    recorded: AtomicU32,
    /// Time of the last record reached, in nanoseconds from `origin`.
    time: AtomicU64,
    origin: Instant,
    /// The queue of the last record, if there is one.
    recorder: Mutex<Option<Weak<dyn Recorder>>>,
}

impl Event {
    /// Creates an event that measures time from `origin`.
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

    /// The address at which a stream waits for the event.
    fn address(&self) -> DeviceAddress {
        DeviceAddress((&raw const self.reached).expose_provenance() as u64)
    }

    /// Returns the number for a record that is about to be enqueued.
    pub(crate) fn number(&self) -> u32 {
        epoch::next(&self.recorded)
    }

    /// Returns the number of the last record enqueued.
    pub(crate) fn last(&self) -> u32 {
        self.recorded.load(Ordering::Acquire)
    }

    /// Sets the queue of the last record.
    pub(crate) fn set_recorder(&self, recorder: Weak<dyn Recorder>) {
        *self.recorder.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorder);
    }

    /// Marks a record as reached. Without a number it is a replayed record, which gets a new one.
    pub(crate) fn reach(&self, number: Option<u32>) {
        let number = number.unwrap_or_else(|| self.number());
        let time = self.origin.elapsed().as_nanos() as u64;
        self.time.store(time, Ordering::Relaxed);
        self.reached.raise(number);
    }

    /// Whether the last record has been reached. If not, the caller first advances the stream itself.
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

    /// Advances a wait for the numbered record. The wait has no bounds of its own; the waits before that record have.
    pub(crate) fn advance_wait(&self, number: u32, pending: &mut Option<Pending>) -> Step {
        let pending = pending.get_or_insert_with(|| Pending::new(number));
        // SAFETY: the event is live during this call, and the bounds have no words.
        match unsafe { look(self.address(), &Bounds::NONE, pending) } {
            PollOutcome::Blocked(sleep) => Step::Blocked(sleep),
            PollOutcome::Reached | PollOutcome::GaveUp { .. } => Step::Done,
        }
    }

    /// Returns nanoseconds from `start` to this event. Both must have been reached.
    pub(crate) fn since(&self, start: &Self) -> CallResult<u64> {
        for (name, event) in [("start", start), ("end", self)] {
            if event.last() == 0 || !event.is_reached() {
                return Err(Failure::new(
                    Status::INVALID_ARGUMENT,
                    "event_elapsed",
                    format!(
                        "the {name} event has not been recorded and reached; synchronize first"
                    ),
                ));
            }
        }
        let time = |event: &Self| event.time.load(Ordering::Relaxed);
        Ok(time(self).saturating_sub(time(start)))
    }
}
