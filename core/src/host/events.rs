//! Events: points in a stream's work, with the time at which they were reached.

use super::stream::Stream;
use super::waiting::SignalWord;
use crate::backend::abi::{DeviceAddress, Status};
use crate::backend::{CallResult, Failure};
use crate::epoch;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Instant;

/// A point in a stream's work. Its records are numbered, and the number reached is a signal word,
/// so that streams wait for an event as they wait for a peer.
pub(super) struct Event {
    reached: SignalWord,
    /// The number of the last record asked for.
    recorded: AtomicU32,
    /// When it was last reached, in nanoseconds from `origin`.
    time: AtomicU64,
    origin: Instant,
    /// The stream whose queue the last record is in.
    recorder: Mutex<Weak<Stream>>,
}

impl Event {
    /// An event that measures time from `origin`.
    pub(super) fn new(origin: Instant) -> Self {
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
    pub(super) fn address(&self) -> DeviceAddress {
        DeviceAddress((&raw const self.reached).expose_provenance() as u64)
    }

    /// Numbers a record that is about to be asked for.
    pub(super) fn number(&self) -> u32 {
        epoch::next(&self.recorded)
    }

    /// The number of the last record asked for.
    pub(super) fn last(&self) -> u32 {
        self.recorded.load(Ordering::Acquire)
    }

    /// Says in whose queue the last record is.
    pub(super) fn set_recorder(&self, stream: Weak<Stream>) {
        *self.recorder.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// The stream has come to the record; without a number, to one that a replay makes.
    pub(super) fn reach(&self, number: Option<u32>) {
        let number = number.unwrap_or_else(|| self.number());
        let time = self.origin.elapsed().as_nanos() as u64;
        self.time.store(time, Ordering::Relaxed);
        self.reached.raise(number);
    }

    /// Whether the last record has been reached. A caller who asks drives the stream itself.
    pub(super) fn done(&self) -> bool {
        if self.is_reached() {
            return true;
        }
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = recorder.upgrade();
        drop(recorder);
        if let Some(stream) = stream {
            stream.poll();
        }
        self.is_reached()
    }

    pub(super) fn is_reached(&self) -> bool {
        epoch::reached(self.reached.value.load(Ordering::Acquire), self.last())
    }

    /// Nanoseconds from `start` to this event, both reached.
    pub(super) fn since(&self, start: &Self) -> CallResult<u64> {
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
