//! The side streams and events of an operation's calls.

use crate::backend::Device;
use crate::backend::abi::*;
use crate::base::error::Result;
use crate::gemm::plan::GemmStream;
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
    pub(crate) fn side(&self, on: GemmStream) -> Option<&SideStream> {
        match on {
            GemmStream::Main => None,
            GemmStream::Copies(index) => self.copies.get(index),
            GemmStream::Gemms(index) => self.gemms.get(index),
        }
    }

    /// Returns an event; `None` if no side streams were made.
    pub(crate) fn event(&self, index: usize) -> Option<RawEvent> {
        self.events.get(index).copied()
    }

    /// Makes the streams and events, in place, so that what was made before a failure is released with the rest.
    fn open(
        &mut self,
        driver: &Driver,
        forked: impl Iterator<Item = GemmStream>,
        events: usize,
    ) -> Result<()> {
        for on in forked {
            match on {
                GemmStream::Main => {}
                GemmStream::Copies(_) => self.copies.push(SideStream::open(driver)?),
                GemmStream::Gemms(_) => self.gemms.push(SideStream::open(driver)?),
            }
        }
        while self.events.len() < events {
            let made = driver.backend.event_create();
            let made = made.map_err(|failure| driver.failed("event_create", failure))?;
            self.events.push(made);
        }
        Ok(())
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

    /// Makes the side streams that a plan forks, each once, and its events; those for captures only if the device has copy
    /// engines. A backend without copy engines records one stream and replays its work in the order in which it was
    /// enqueued, which every plan allows.
    ///
    /// # Errors
    /// The backend's errors.
    pub(crate) fn open(
        &mut self,
        driver: &Driver,
        forked: impl Iterator<Item = GemmStream> + Clone,
        events: usize,
    ) -> Result<()> {
        let [eager, captured] = &mut self.0;
        eager.open(driver, forked.clone(), events)?;
        if driver.capabilities.flags & CAPABILITY_COPY_ENGINE == 0 {
            return Ok(());
        }
        captured.open(driver, forked, events)
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
