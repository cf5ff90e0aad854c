//! The device resources of an operation: memory that peers write, side streams, prepared GEMMs.
//!
//! All are made with the operation, since making them can make the driver wait for the device or allocate,
//! which no call may wait for. They are released like a module: once no graph holds them and this rank's
//! streams are idle.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, Failure, Gemm};
use crate::base::error::Result;
use crate::gemm::plan::{GemmStep, GemmStream};
use crate::gemm::prepared::Prepared;
use crate::gemm::scratch::Scratch;
use crate::rank::allocation::Allocation;
use crate::rank::driver::Driver;
use crate::rank::release::{Held, Progress, Resource};
use crate::rank::sequence::Sequence;
use crate::rank::side::SideStream;
use std::sync::Arc;

/// The side streams and events of a call. Captured and eager calls use different ones: a stream that takes part
/// in a capture takes no eager work until the capture has ended.
#[derive(Default)]
pub(super) struct StreamsAndEvents {
    pub(super) copies: Vec<SideStream>,
    pub(super) gemms: Vec<SideStream>,
    pub(super) events: Vec<RawEvent>,
}

impl StreamsAndEvents {
    /// Returns the side stream of `on`; `None` for the caller's stream, and for all streams if no side streams
    /// were made. All work is then on the caller's stream, and events are not needed for its order.
    pub(super) fn side(&self, on: GemmStream) -> Option<&SideStream> {
        match on {
            GemmStream::Main => None,
            GemmStream::Copies(index) => self.copies.get(index),
            GemmStream::Gemms(index) => self.gemms.get(index),
        }
    }

    /// Makes the streams and events that `steps` need, in place, so that what was made before a failure is
    /// released with the rest.
    fn open(&mut self, driver: &Driver, steps: &[GemmStep]) -> Result<()> {
        for step in steps {
            match *step {
                GemmStep::Fork {
                    on: GemmStream::Copies(_),
                } => self.copies.push(SideStream::open(driver)?),
                GemmStep::Fork {
                    on: GemmStream::Gemms(_),
                } => self.gemms.push(SideStream::open(driver)?),
                GemmStep::Mark { event, .. } => {
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

/// The device resources of an operation.
#[derive(Default)]
pub(crate) struct Workspace {
    /// The gathered `A`, if the caller provides no buffer.
    pub(super) gathered: Option<Arc<Allocation>>,
    /// All ranks' shards, one behind the other, for algorithms that gather them as blocks first.
    pub(super) staging: Option<Arc<Allocation>>,
    /// Words with which peers signal arrivals; `None` if no step waits for a peer.
    pub(super) signals: Option<Arc<Allocation>>,
    /// For eager and for captured calls.
    pub(super) streams: [StreamsAndEvents; 2],
    pub(super) prepared: Vec<Prepared>,
    /// The sequence of the operation's calls.
    pub(super) sequence: Arc<Sequence>,
    /// The resources of a timing that was broken off, which may still be in use.
    pub(super) scratch: Option<Scratch>,
}

impl Workspace {
    /// Makes the side streams, twice; for captures only if the device has copy engines. A backend without copy
    /// engines records one stream and replays its work in the order in which it was enqueued, which every plan
    /// allows.
    ///
    /// # Errors
    /// The backend's errors.
    pub(super) fn open_streams(&mut self, driver: &Driver, steps: &[GemmStep]) -> Result<()> {
        let [eager, captured] = &mut self.streams;
        eager.open(driver, steps)?;
        if driver.capabilities.flags & CAPABILITY_COPY_ENGINE == 0 {
            return Ok(());
        }
        captured.open(driver, steps)
    }

    /// Enqueues a prepared GEMM.
    ///
    /// # Safety
    /// As [`Gemm::gemm`].
    pub(super) unsafe fn multiply(
        &self,
        backend: &Backend,
        (rows, on): (u64, GemmStream),
        operands: &GemmOperands,
        stream: RawStream,
    ) -> CallResult<()> {
        let known = |prepared: &&Prepared| prepared.rows == rows && prepared.on == on;
        let Some(prepared) = self.prepared.iter().find(known) else {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "gemm",
                format!(
                    "no GEMM of {rows} rows was prepared for the {on}; this is a bug in symmem, please report \
                    it"
                ),
            ));
        };
        // SAFETY: prepared GEMMs live as long as this; the caller guarantees the rest.
        unsafe { backend.gemm(prepared.raw, prepared.candidate, operands, stream) }
    }
}

impl Resource for Workspace {
    /// Releases this rank's own resources once nothing runs, as modules are unloaded: the library may wait for
    /// the device. The memory, which peers may still use, and the streams are returned, to be released in turn.
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        if !quiet || !unheld {
            return Progress::Waits;
        }
        let (rank, backend) = (driver.rank, &driver.backend);
        for prepared in &self.prepared {
            // SAFETY: prepared by `operation`, and used by no stream or graph any more.
            if let Err(failure) = unsafe { backend.gemm_release(prepared.raw) } {
                tracing::warn!(rank, %failure, "gemm_release failed");
            }
        }
        let mut next: Vec<Held> = Vec::new();
        for streams in &self.streams {
            for &event in &streams.events {
                // SAFETY: made in `open`, and used by this operation's streams only, which are idle.
                if let Err(failure) = unsafe { backend.event_destroy(event) } {
                    tracing::warn!(rank, %failure, "event_destroy failed");
                }
            }
            let streams = streams.copies.iter().chain(&streams.gemms);
            next.extend(streams.map(SideStream::closing));
        }
        next.extend(
            self.scratch
                .iter()
                .filter_map(|scratch| scratch.release(driver)),
        );
        for memory in [&self.gathered, &self.staging, &self.signals] {
            next.extend(memory.iter().map(|memory| memory.clone() as Held));
        }
        Progress::Released(next)
    }
}
