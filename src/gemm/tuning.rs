//! Running the library's products once, before any call waits for a peer.
//!
//! A library loads a kernel when it is first used, and may wait for the device then, which may be waiting for
//! a peer: so each product is run when the operation is made, on memory that is given back. And the first
//! guess of a library can be far off: so all its ways are timed, and the best is taken, unless one is stored:
//! then each is only run. Ranks need not take the same.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, Failure, Gemm};
use crate::base::error::{Error, Result};
use crate::base::gemm_shape;
use crate::base::names::ElementType;
use crate::gemm::options::NAME;
use crate::gemm::prepared::Prepared;
use crate::gemm::scratch::Scratch;
use crate::gemm::workspace::Workspace;
use crate::rank::context::Context;
use crate::world::world::World;
use std::time::{Duration, Instant};

/// Ways that are timed at most: the list is the best guess first.
const MOST: u32 = 8;
/// Runs of each that are timed together, after one that is not.
const RUNS: u32 = 3;
/// How often the device is asked whether it is done.
const ASK_INTERVAL: Duration = Duration::from_micros(100);

/// How long a rank waits for its own device at most before it tells its peers of the outcome: shorter than they
/// wait for it, so that they hear the reason.
pub(super) fn patience(shared: &Context) -> Duration {
    shared.deadlines.setup - shared.deadlines.setup / 8
}

/// Finds the best way of each product, for the shapes that differ. What peers wait for began at `begun`.
///
/// # Errors
/// The backend's. What may still run then is left to the workspace, which is released once all is idle.
pub(super) fn tune(
    shared: &World,
    shape: &gemm_shape::GemmShape,
    element: ElementType,
    workspace: &mut Workspace,
    begun: Instant,
) -> Result<()> {
    // A processor loads nothing, and has one way.
    if shared.capabilities.flags & CAPABILITY_LAUNCH == 0 || workspace.prepared.is_empty() {
        return Ok(());
    }
    let rows = workspace.prepared.iter().map(|prepared| prepared.rows);
    let whole = shape.raw(element, rows.max().unwrap_or(0), shape.k as u64);
    let scratch = workspace.scratch.insert(Scratch::default());
    if let Err(failure) = scratch.open(shared, shared.kind, &whole) {
        if failure.status != Status::OUT_OF_MEMORY {
            return Err(refused(shared, failure));
        }
        // What is made here is of more use with its first guesses than not at all.
        tracing::warn!(rank = shared.rank, %failure, "products are not timed");
    } else {
        let tuned = choose(scratch, shared, &mut workspace.prepared, begun);
        tuned.map_err(|failure| refused(shared, failure))?;
    }
    // It is idle.
    if let Some(scratch) = workspace.scratch.take()
        && let Some(stream) = scratch.release(shared)
    {
        shared.give_up(stream);
    }
    Ok(())
}

/// A product that cannot be had is no reason to mistrust the device: nobody waits for it.
pub(super) fn refused(shared: &Context, failure: Failure) -> Error {
    match failure.status {
        Status::CONTEXT_LOST => shared.failed(NAME, failure),
        _ => Error::backend(shared.rank, NAME, failure),
    }
}

/// Chooses the way of each product. The stream is idle where that succeeds.
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
        let rows = prepared[index].rows;
        let before = prepared[..index].iter().find(|known| known.rows == rows);
        prepared[index].candidate = match before {
            Some(known) => known.candidate,
            None => timing.way(&prepared[index])?,
        };
        prepared[index].known = true;
    }
    Ok(())
}

/// The timing of an operation's products.
struct Timing<'a> {
    scratch: &'a Scratch,
    backend: &'a Backend,
    rank: usize,
    stream: RawStream,
    begun: Instant,
    limit: Duration,
}

impl Timing<'_> {
    /// The way of a product that is stored; else the fastest.
    fn way(&self, prepared: &Prepared) -> CallResult<u32> {
        let Some(stored) = prepared.stored else {
            return self.best(prepared.raw);
        };
        match self.load(prepared.raw, stored)? {
            Ok(()) => Ok(stored),
            Err(failure) => {
                let (rank, rows) = (self.rank, prepared.rows);
                tracing::warn!(
                    rank,
                    rows,
                    stored,
                    %failure,
                    "the library refuses the stored way of a product: it is timed; tune again"
                );
                self.best(prepared.raw)
            }
        }
    }

    /// Runs each of a product's ways once, so that all kernels are loaded: which one operands take depends on
    /// how they are aligned, too. The outer result is the device's, the inner one says whether `stored` ran.
    fn load(&self, gemm: RawGemm, stored: u32) -> CallResult<CallResult<()>> {
        // SAFETY: the product is live.
        let ways = unsafe { self.backend.gemm_candidates(gemm) }?;
        let operands = self.operands();
        let mut outcome = Ok(());
        for way in 0..ways {
            // SAFETY: all is live, and of the shape's sizes; nothing else uses it.
            match unsafe { self.backend.gemm(gemm, way, &operands, self.stream) } {
                Err(failure) if failure.status == Status::CONTEXT_LOST => return Err(failure),
                Err(failure) if way == stored => outcome = Err(failure),
                _ => {}
            }
        }
        self.wait()?;
        Ok(outcome)
    }

    /// The fastest of a product's ways, among those that there is time for.
    fn best(&self, gemm: RawGemm) -> CallResult<u32> {
        // SAFETY: the product is live.
        let ways = unsafe { self.backend.gemm_candidates(gemm) }?.min(MOST);
        let mut best: Option<(u64, u32)> = None;
        let mut failed = None;
        for way in 0..ways.max(1) {
            if best.is_some() && self.begun.elapsed() > self.limit / 2 {
                break;
            }
            let enqueued = self.enqueue(gemm, way);
            // Whatever of it was begun has to end: the next way, and who gives this memory back, rely on it.
            self.wait()?;
            match enqueued.and_then(|()| self.elapsed()) {
                Ok(time) if best.is_none_or(|(least, _)| time < least) => best = Some((time, way)),
                Ok(_) => {}
                Err(failure) if failure.status == Status::CONTEXT_LOST => return Err(failure),
                Err(failure) => failed = Some(failure),
            }
        }
        match (best, failed) {
            (Some((_, way)), _) => Ok(way),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(0),
        }
    }

    fn operands(&self) -> GemmOperands {
        let address = |index: usize| self.scratch.memory[index].address;
        GemmOperands {
            a: address(0),
            b: address(1),
            c: address(2),
            bias: match self.scratch.bias {
                true => address(3),
                false => DeviceAddress::NULL,
            },
        }
    }

    /// Enqueues [`RUNS`] products, and one before.
    fn enqueue(&self, gemm: RawGemm, way: u32) -> CallResult<()> {
        let (backend, stream) = (self.backend, self.stream);
        let operands = self.operands();
        // SAFETY: all is live, and of the shape's sizes; nothing else uses it.
        unsafe {
            backend.gemm(gemm, way, &operands, stream)?;
            backend.event_record(self.scratch.events[0], stream)?;
            for _ in 0..RUNS {
                backend.gemm(gemm, way, &operands, stream)?;
            }
            backend.event_record(self.scratch.events[1], stream)
        }
    }

    /// Nanoseconds that they took.
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
                        "the library's products are not done after {:?}: is the device busy with other \
                         work? With `GemmOptions::tune` off they are not timed",
                        self.begun.elapsed()
                    ),
                ));
            }
            std::thread::sleep(ASK_INTERVAL);
        }
        Ok(())
    }
}
