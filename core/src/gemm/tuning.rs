//! Running the library's products once, before any call waits for a peer.
//!
//! A library loads a kernel when it is first used, and may wait for the device then, which may be waiting for
//! a peer: so each product is run when the operation is made, on memory that is given back. And the first
//! guess of a library can be far off: so all its ways are timed, and the best is taken, unless one is stored:
//! then each is only run. Ranks need not take the same.

use super::shape::GemmShape;
use super::workspace::Prepared;
use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, Failure, Gemm, SymmetricMemory};
use crate::communicator::Inner;
use crate::error::{Error, Result};
use std::time::{Duration, Instant};

/// Ways that are timed at most: the list is the best guess first.
const MOST: u32 = 8;
/// Runs of each that are timed together, after one that is not.
const RUNS: u32 = 3;
/// How often the device is asked whether it is done.
const ASK_INTERVAL: Duration = Duration::from_micros(100);

/// Finds the best way of each product, for the shapes that differ.
///
/// # Errors
/// The backend's.
pub(super) fn tune(
    shared: &Inner,
    shape: &GemmShape,
    element: ElementType,
    prepared: &mut [Prepared],
) -> Result<()> {
    // A processor loads nothing, and has one way.
    if shared.capabilities.flags & CAPABILITY_LAUNCH == 0 || prepared.is_empty() {
        return Ok(());
    }
    let failed = |failure| refused(shared, failure);
    let most = prepared.iter().map(|prepared| prepared.rows).max();
    let scratch = match Scratch::new(shared, shape, element, most.unwrap_or(0)) {
        Err(failure) if failure.status == Status::OUT_OF_MEMORY => {
            // What is made here is of more use with its first guesses than not at all.
            tracing::warn!(rank = shared.rank, %failure, "products are not timed");
            return Ok(());
        }
        scratch => scratch.map_err(failed)?,
    };
    for index in 0..prepared.len() {
        let rows = prepared[index].rows;
        let before = prepared[..index].iter().find(|known| known.rows == rows);
        prepared[index].candidate = match before {
            Some(known) => known.candidate,
            None => scratch.way(&prepared[index]).map_err(failed)?,
        };
    }
    Ok(())
}

/// A product that cannot be had is no reason to mistrust the device: nobody waits for it.
pub(super) fn refused(shared: &Inner, failure: Failure) -> Error {
    let name = super::operation::NAME;
    match failure.status {
        Status::CONTEXT_LOST => shared.failed(name, failure),
        _ => Error::backend(shared.rank, name, failure),
    }
}

/// Memory, a stream and events, given back when dropped.
struct Scratch<'a> {
    backend: &'a Backend,
    limit: Duration,
    stream: RawStream,
    events: Vec<RawEvent>,
    memory: Vec<SharedAllocation>,
    bias: bool,
}

impl<'a> Scratch<'a> {
    fn new(
        shared: &'a Inner,
        shape: &GemmShape,
        element: ElementType,
        rows: u64,
    ) -> CallResult<Self> {
        let backend: &Backend = &shared.backend;
        let mut scratch = Self {
            backend,
            limit: shared.options.setup_deadline,
            stream: backend.stream_create()?,
            events: Vec::new(),
            memory: Vec::new(),
            bias: shape.bias,
        };
        let whole = shape.raw(element, rows, shape.k as u64);
        let lines = match whole.b_order {
            MatrixOrder::COLUMNS => whole.n,
            _ => whole.k,
        };
        let sizes = [
            rows * whole.k,
            lines * whole.b_stride,
            rows * whole.c_stride,
            whole.n,
        ];
        let kind = shared.kind.get().copied().unwrap_or_default();
        for elements in sizes {
            let memory = backend.allocate(kind, elements * element.bytes())?;
            scratch.memory.push(memory);
        }
        for _ in 0..2 {
            scratch.events.push(backend.event_create()?);
        }
        Ok(scratch)
    }

    /// The way of a product that is stored; else the fastest.
    fn way(&self, prepared: &Prepared) -> CallResult<u32> {
        let Some(stored) = prepared.stored else {
            return self.best(prepared.raw);
        };
        match self.load(prepared.raw, stored)? {
            Ok(()) => Ok(stored),
            Err(failure) => {
                let rows = prepared.rows;
                tracing::warn!(rows, stored, %failure, "the library refuses the stored way of a product: it is timed");
                self.best(prepared.raw)
            }
        }
    }

    /// Runs each of a product's ways once, so that all kernels are loaded: which one operands take depends on
    /// how they are aligned, too. Whether `stored` is one that can be run.
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

    /// The fastest of a product's ways.
    fn best(&self, gemm: RawGemm) -> CallResult<u32> {
        // SAFETY: the product is live.
        let ways = unsafe { self.backend.gemm_candidates(gemm) }?.min(MOST);
        let mut best: Option<(u64, u32)> = None;
        let mut failed = None;
        for way in 0..ways.max(1) {
            match self.time(gemm, way) {
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
        let address = |index: usize| self.memory[index].address;
        GemmOperands {
            a: address(0),
            b: address(1),
            c: address(2),
            bias: match self.bias {
                true => address(3),
                false => DeviceAddress::NULL,
            },
        }
    }

    /// Nanoseconds of [`RUNS`] products.
    fn time(&self, gemm: RawGemm, way: u32) -> CallResult<u64> {
        let (backend, stream, operands) = (self.backend, self.stream, self.operands());
        let (start, end) = (self.events[0], self.events[1]);
        // SAFETY: all is live, and of the shape's sizes; nothing else uses it.
        unsafe {
            backend.gemm(gemm, way, &operands, stream)?;
            backend.event_record(start, stream)?;
            for _ in 0..RUNS {
                backend.gemm(gemm, way, &operands, stream)?;
            }
            backend.event_record(end, stream)?;
        }
        self.wait()?;
        // SAFETY: both were recorded above.
        unsafe { backend.event_elapsed(start, end) }
    }

    /// Waits until the stream is idle.
    fn wait(&self) -> CallResult<()> {
        let begun = Instant::now();
        // SAFETY: the stream is live.
        while unsafe { self.backend.stream_idle(self.stream) }? == 0 {
            if begun.elapsed() > self.limit {
                return Err(Failure::new(
                    Status::CALL_FAILED,
                    "gemm",
                    format!("products are not done after {:?}", begun.elapsed()),
                ));
            }
            std::thread::sleep(ASK_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.wait() {
            tracing::warn!(%failure, "memory that may still be in use is left to the end of the process");
            return;
        }
        let backend = self.backend;
        // SAFETY: made in `new`, and idle. What cannot be given back is only told of.
        unsafe {
            let events = self
                .events
                .iter()
                .map(|&event| backend.event_destroy(event));
            let memory = self.memory.iter().map(|memory| backend.free(memory.handle));
            let stream = std::iter::once(backend.stream_destroy(self.stream));
            for failure in events
                .chain(memory)
                .chain(stream)
                .filter_map(CallResult::err)
            {
                tracing::warn!(%failure, "giving back what products were timed on");
            }
        }
    }
}
