//! Resources of the timing of GEMMs.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, SymmetricMemory};
use crate::rank::driver::Driver;
use crate::rank::release::Held;
use crate::rank::side::ClosingStream;
use crate::rank::streams::KnownStream;

/// Resources of the timing of GEMMs: memory, a stream and events.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) stream: Option<RawStream>,
    pub(super) events: Vec<RawEvent>,
    pub(super) memory: Vec<SharedAllocation>,
    pub(super) bias: bool,
}

impl Scratch {
    /// Makes the resources, for GEMMs of at most the shape's rows, in place, so that what was made before a
    /// failure is released with the rest.
    pub(super) fn open(
        &mut self,
        driver: &Driver,
        kind: ShareKindCode,
        whole: &GemmLayout,
    ) -> CallResult<()> {
        let backend: &Backend = &driver.backend;
        self.bias = whole.bias != 0;
        let stream = backend.stream_create()?;
        // Registered as callers' streams are, so that nothing that it may use is released while it has work.
        driver.add_stream(KnownStream {
            raw: stream,
            owned: true,
            event: None,
            admitted: 0,
        });
        self.stream = Some(stream);
        let lines = match whole.b_order {
            MatrixOrderCode::COLUMNS => whole.n,
            _ => whole.k,
        };
        let sizes = [
            whole.m * whole.k,
            lines * whole.b_stride,
            whole.m * whole.c_stride,
            whole.n,
        ];
        for elements in sizes {
            let memory = backend.allocate(kind, elements * whole.element.bytes())?;
            self.memory.push(memory);
        }
        for _ in 0..2 {
            self.events.push(backend.event_create()?);
        }
        Ok(())
    }

    /// Releases memory and events, which nothing uses any more; logs failures. Returns the stream, to be
    /// closed.
    pub(super) fn release(&self, driver: &Driver) -> Option<Held> {
        let backend: &Backend = &driver.backend;
        let events = self.events.iter();
        // SAFETY: made in `open`; the caller guarantees that the stream is idle.
        let events = events.map(|&event| unsafe { backend.event_destroy(event) });
        // SAFETY: as above.
        let free = |memory: &SharedAllocation| unsafe { backend.free(memory.handle) };
        for failure in events
            .chain(self.memory.iter().map(free))
            .filter_map(CallResult::err)
        {
            tracing::warn!(rank = driver.rank, %failure, "could not release the memory of GEMM timing");
        }
        self.stream.map(|stream| ClosingStream::held(stream, true))
    }
}
