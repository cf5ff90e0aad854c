//! The side streams and events of an operation's calls.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device};
use crate::base::error::Result;
use crate::gemm::streams::{GemmStream, PlanStep, StreamOrder};
use crate::rank::driver::Driver;
use crate::rank::release::Held;
use crate::rank::side::SideStream;

/// The side streams and events of a call.
#[derive(Default)]
pub(crate) struct SideStreams {
    copies: Vec<SideStream>,
    gemms: Vec<SideStream>,
    events: Vec<RawEvent>,
}

impl SideStreams {
    /// Returns the side stream of `on`; `None` for the caller's stream, and for all streams if no side streams
    /// were made. All work is then on the caller's stream, and events are not needed for its order.
    fn side(&self, on: GemmStream) -> Option<&SideStream> {
        match on {
            GemmStream::Main => None,
            GemmStream::Copies(index) => self.copies.get(index),
            GemmStream::Gemms(index) => self.gemms.get(index),
        }
    }

    /// Returns the stream of `on`; `main` is the caller's.
    pub(crate) fn raw(&self, on: GemmStream, main: RawStream) -> RawStream {
        self.side(on).map_or(main, |side| side.raw())
    }

    /// Orders the streams of a call whose stream is `main`.
    ///
    /// # Safety
    /// The streams and events are live.
    pub(crate) unsafe fn order(
        &self,
        backend: &Backend,
        main: RawStream,
        order: StreamOrder,
    ) -> CallResult<()> {
        let event = |index: usize| self.events.get(index).copied();
        // SAFETY: guaranteed by the caller.
        unsafe {
            match order {
                StreamOrder::Fork(on) => match self.side(on) {
                    Some(side) => side.fork(backend, main),
                    None => Ok(()),
                },
                StreamOrder::Join(on) => match self.side(on) {
                    Some(side) => side.join(backend, main),
                    None => Ok(()),
                },
                StreamOrder::Mark(index, on) => match event(index) {
                    Some(event) => backend.event_record(event, self.raw(on, main)),
                    None => Ok(()),
                },
                StreamOrder::Await(index, on) => match event(index) {
                    Some(event) => backend.stream_wait_event(self.raw(on, main), event),
                    None => Ok(()),
                },
            }
        }
    }

    /// Makes the streams that a plan forks, each once, and its events, in place, so that what was made before a failure is
    /// released with the rest.
    fn open<S: PlanStep>(&mut self, driver: &Driver, steps: &[S]) -> Result<()> {
        for order in steps.iter().filter_map(PlanStep::order) {
            match order {
                StreamOrder::Fork(GemmStream::Copies(_)) => {
                    self.copies.push(SideStream::open(driver)?);
                }
                StreamOrder::Fork(GemmStream::Gemms(_)) => {
                    self.gemms.push(SideStream::open(driver)?);
                }
                StreamOrder::Mark(event, _) => {
                    while self.events.len() <= event {
                        let made = driver.backend.event_create();
                        let made =
                            made.map_err(|failure| driver.failed("event_create", failure))?;
                        self.events.push(made);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Enqueues the steps of a plan in order, by `enqueue`, up to the first failure. Joins all forked streams even then: a capture
/// cannot end while one is not joined. Returns whether a step was begun, and the failure.
pub(crate) fn enqueue_all<S: PlanStep>(
    steps: &[S],
    mut enqueue: impl FnMut(&S) -> CallResult<()>,
) -> (bool, CallResult<()>) {
    let mut forked = [0u128; 2];
    let (mut begun, mut done) = (false, Ok(()));
    for step in steps {
        match step.order() {
            Some(StreamOrder::Fork(on)) if done.is_ok() => {
                let (bits, bit) = bits(&mut forked, on);
                *bits |= bit;
            }
            Some(StreamOrder::Join(on)) => {
                let (bits, bit) = bits(&mut forked, on);
                if *bits & bit == 0 {
                    continue;
                }
            }
            _ if done.is_err() => continue,
            _ => {}
        }
        let step = enqueue(step);
        begun |= step.is_ok();
        done = done.and(step);
    }
    (begun, done)
}

/// Returns the bits that record whether a stream was forked.
fn bits(forked: &mut [u128; 2], on: GemmStream) -> (&mut u128, u128) {
    match on {
        GemmStream::Main => (&mut forked[0], 0),
        GemmStream::Copies(index) => (&mut forked[0], 1 << (index % 128)),
        GemmStream::Gemms(index) => (&mut forked[1], 1 << (index % 128)),
    }
}

/// The side streams of eager and of captured calls, which are different ones: a stream that takes part in a capture takes
/// no eager work until the capture has ended.
#[derive(Default)]
pub(crate) struct CallStreams([SideStreams; 2]);

impl CallStreams {
    /// Returns the side streams of an eager or a captured call.
    pub(crate) fn of(&self, captured: bool) -> &SideStreams {
        &self.0[usize::from(captured)]
    }

    /// Makes the side streams and events of a plan; those for captures only if the device has copy engines. A backend without
    /// copy engines records one stream and replays its work in the order in which it was enqueued, which every plan allows.
    ///
    /// # Errors
    /// The backend's errors.
    pub(crate) fn open<S: PlanStep>(&mut self, driver: &Driver, steps: &[S]) -> Result<()> {
        let [eager, captured] = &mut self.0;
        eager.open(driver, steps)?;
        if driver.capabilities.flags & CAPABILITY_COPY_ENGINE == 0 {
            return Ok(());
        }
        captured.open(driver, steps)
    }

    /// Destroys the events; logs failures. Returns the streams, to be closed once they are idle.
    pub(crate) fn release(&self, driver: &Driver) -> Vec<Held> {
        let all = || self.0.iter();
        for &event in all().flat_map(|streams| &streams.events) {
            // SAFETY: made in `open`, and used by this operation's streams only, which are idle.
            if let Err(failure) = unsafe { driver.backend.event_destroy(event) } {
                tracing::warn!(rank = driver.rank, %failure, "event_destroy failed");
            }
        }
        let streams = all().flat_map(|streams| streams.copies.iter().chain(&streams.gemms));
        streams.map(SideStream::closing).collect()
    }
}
