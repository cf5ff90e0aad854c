//! Timing of the GEMM library's heuristic candidates, before any call waits for a peer.
//!
//! cuBLASLt and hipBLASLt load a kernel at its first use, and may then wait for the device, which may be
//! waiting for a peer. So each GEMM runs once when the operation is made, on memory that is freed afterwards.
//! The library's first heuristic candidate can be far from the fastest, so the first candidates, up to [`MOST`]
//! and as many as there is time for, are timed, and the fastest is used. A candidate stored in a tuning row is not
//! timed, only run. Ranks need not use the same candidate.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, Failure, Gemm};
use crate::base::error::Result;
use crate::gemm::prepared::{Prepared, PreparedGemms, refused};
use crate::gemm::scratch::Scratch;
use crate::rank::context::Context;
use crate::world::world::World;
use std::time::{Duration, Instant};

/// Most candidates to time: the list starts with the library's best guess.
const MOST: u32 = 8;
/// Timed runs of each candidate, after one that is not timed.
const RUNS: u32 = 3;
/// Interval at which the stream is polled.
const ASK_INTERVAL: Duration = Duration::from_micros(100);

/// Returns how long a rank waits for its own device before it reports the outcome: shorter than its peers wait
/// for it, so that they receive the reason.
fn patience(shared: &Context) -> Duration {
    shared.deadlines.setup - shared.deadlines.setup / 8
}

/// Waits until this rank's streams are idle: the GEMM library may wait for the device when it is opened and when it prepares a
/// GEMM, and the device may wait for a peer that needs this rank.
///
/// # Errors
/// As [`crate::rank::driver::Driver::wait_all_idle`].
pub(crate) fn wait_until_idle(shared: &Context) -> Result<()> {
    if shared.capabilities.flags & CAPABILITY_LAUNCH == 0 {
        return Ok(());
    }
    shared.wait_all_idle(patience(shared))
}

/// Finds the fastest candidate of each distinct GEMM of an operation called `name`. `begun` is when peers began to wait for
/// the outcome.
///
/// # Errors
/// The backend's errors. Memory of a run that may not have ended stays with the GEMMs, which are released once
/// all streams are idle.
pub(crate) fn tune(
    shared: &World,
    gemms: &mut PreparedGemms,
    name: &'static str,
    begun: Instant,
) -> Result<()> {
    // The host backend loads no kernels, and has one candidate.
    if shared.capabilities.flags & CAPABILITY_LAUNCH == 0 || gemms.list.is_empty() {
        return Ok(());
    }
    let scratch = gemms.scratch.insert(Scratch::default());
    let layouts = gemms.list.iter().map(|prepared| &prepared.layout);
    if let Err(failure) = scratch.open(shared, shared.kind, layouts) {
        if failure.status != Status::OUT_OF_MEMORY {
            return Err(refused(shared, name, failure));
        }
        // Without memory for the timing, use the library's first candidates.
        tracing::warn!(rank = shared.rank, %failure, "no memory to time GEMMs: stored or first candidates are used");
    } else {
        if let Err(error) = scratch.fill(shared) {
            let rank = shared.rank;
            tracing::debug!(rank, %error, "GEMMs are timed with whatever is in the memory");
        }
        let tuned = choose(scratch, shared, &mut gemms.list, begun);
        tuned.map_err(|failure| refused(shared, name, failure))?;
    }
    // The stream is idle.
    if let Some(scratch) = gemms.scratch.take()
        && let Some(stream) = scratch.release(shared)
    {
        shared.give_up(stream);
    }
    Ok(())
}

/// Chooses the candidate of each GEMM. If it succeeds, the stream is idle.
fn choose(
    scratch: &Scratch,
    shared: &World,
    prepared: &mut [Prepared],
    begun: Instant,
) -> CallResult<()> {
    let Some(stream) = scratch.stream else {
        return Ok(());
    };
    let timing = Timing {
        scratch,
        backend: &shared.backend,
        rank: shared.rank,
        stream,
        begun,
        limit: patience(shared),
    };
    for index in 0..prepared.len() {
        let layout = prepared[index].layout;
        let before = prepared[..index]
            .iter()
            .find(|known| known.layout == layout);
        prepared[index].candidate = match before {
            Some(known) => known.candidate,
            None => timing.candidate(&prepared[index])?,
        };
        prepared[index].known = true;
    }
    Ok(())
}

/// The timing of an operation's GEMMs.
struct Timing<'a> {
    scratch: &'a Scratch,
    backend: &'a Backend,
    rank: usize,
    stream: RawStream,
    begun: Instant,
    limit: Duration,
}

impl Timing<'_> {
    /// Returns the stored candidate of a GEMM if it runs, else the fastest.
    fn candidate(&self, prepared: &Prepared) -> CallResult<u32> {
        let Some(stored) = prepared.stored else {
            return self.best(prepared);
        };
        match self.load(prepared, stored)? {
            Ok(()) => Ok(stored),
            Err(failure) => {
                let (rank, rows) = (self.rank, prepared.layout.m);
                tracing::warn!(
                    rank,
                    rows,
                    stored,
                    %failure,
                    "the library refuses the stored GEMM candidate: the GEMM is timed instead; tune again"
                );
                self.best(prepared)
            }
        }
    }

    /// Runs each candidate of a GEMM once, so that all kernels are loaded: the library's kernel depends on the
    /// operands' alignment, too. The outer result is the device's, the inner one tells whether `stored` ran.
    fn load(&self, prepared: &Prepared, stored: u32) -> CallResult<CallResult<()>> {
        let gemm = prepared.raw;
        // SAFETY: the GEMM is live.
        let offered = unsafe { self.backend.gemm_candidates(gemm) }?;
        let operands = self.scratch.operands(&prepared.layout);
        let mut outcome = Ok(());
        for candidate in 0..offered {
            // SAFETY: all memory is live, and of the shape's sizes; nothing else uses it.
            match unsafe { self.backend.gemm(gemm, candidate, &operands, self.stream) } {
                Err(failure) if failure.status == Status::CONTEXT_LOST => return Err(failure),
                Err(failure) if candidate == stored => outcome = Err(failure),
                _ => {}
            }
        }
        self.wait()?;
        Ok(outcome)
    }

    /// Returns the fastest candidate of a GEMM, among those that there is time for.
    fn best(&self, prepared: &Prepared) -> CallResult<u32> {
        // SAFETY: the GEMM is live.
        let offered = unsafe { self.backend.gemm_candidates(prepared.raw) }?.min(MOST);
        let mut best: Option<(u64, u32)> = None;
        let mut failed = None;
        for candidate in 0..offered.max(1) {
            if best.is_some() && self.begun.elapsed() > self.limit / 2 {
                break;
            }
            let enqueued = self.enqueue(prepared, candidate);
            // All begun work must end: the next candidate, and the release of this memory, rely on it.
            self.wait()?;
            match enqueued.and_then(|()| self.elapsed()) {
                Ok(time) if best.is_none_or(|(least, _)| time < least) => {
                    best = Some((time, candidate))
                }
                Ok(_) => {}
                Err(failure) if failure.status == Status::CONTEXT_LOST => return Err(failure),
                Err(failure) => failed = Some(failure),
            }
        }
        match (best, failed) {
            (Some((_, candidate)), _) => Ok(candidate),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(0),
        }
    }

    /// Enqueues one GEMM that is not timed, then [`RUNS`] that are.
    fn enqueue(&self, prepared: &Prepared, candidate: u32) -> CallResult<()> {
        let gemm = prepared.raw;
        let (backend, stream) = (self.backend, self.stream);
        let operands = self.scratch.operands(&prepared.layout);
        // SAFETY: all memory is live, and of the shape's sizes; nothing else uses it.
        unsafe {
            backend.gemm(gemm, candidate, &operands, stream)?;
            backend.event_record(self.scratch.events[0], stream)?;
            for _ in 0..RUNS {
                backend.gemm(gemm, candidate, &operands, stream)?;
            }
            backend.event_record(self.scratch.events[1], stream)
        }
    }

    /// Returns the time of the [`RUNS`] runs in nanoseconds.
    fn elapsed(&self) -> CallResult<u64> {
        let [start, end] = [0, 1].map(|index| self.scratch.events[index]);
        // SAFETY: both were recorded, and the stream has passed them.
        unsafe { self.backend.event_elapsed(start, end) }
    }

    /// Waits until the stream is idle.
    fn wait(&self) -> CallResult<()> {
        // SAFETY: the stream is live.
        while !unsafe { self.backend.stream_idle(self.stream) }? {
            if self.begun.elapsed() > self.limit {
                return Err(Failure::new(
                    Status::CALL_FAILED,
                    "gemm",
                    format!(
                        "the GEMMs under timing are not done after {:?}; check what else keeps the device busy, or \
                         turn `GemmOptions::tune` off",
                        self.begun.elapsed()
                    ),
                ));
            }
            std::thread::sleep(ASK_INTERVAL);
        }
        Ok(())
    }
}
