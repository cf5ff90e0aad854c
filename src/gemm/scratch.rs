//! Resources of the timing of GEMMs.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, SymmetricMemory};
use crate::rank::driver::Driver;
use crate::rank::release::Held;
use crate::rank::side::ClosingStream;
use crate::rank::streams::KnownStream;

/// Resources of the timing of GEMMs: memory, a stream and events.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) stream: Option<RawStream>,
    pub(super) events: Vec<RawEvent>,
    /// `A`, `B`, `C`, bias and addend.
    memory: Vec<SharedAllocation>,
}

impl Scratch {
    /// Makes the resources, with memory for each of these GEMMs, in place, so that what was made before a failure is
    /// released with the rest.
    pub(super) fn open<'a>(
        &mut self,
        driver: &Driver,
        kind: ShareKindCode,
        layouts: impl Iterator<Item = &'a GemmLayout>,
    ) -> CallResult<()> {
        let backend: &Backend = &driver.backend;
        let stream = backend.stream_create()?;
        // Registered as callers' streams are, so that nothing that it may use is released while it has work.
        driver.add_stream(KnownStream {
            raw: stream,
            owned: true,
            event: None,
            admitted: 0,
        });
        self.stream = Some(stream);
        let mut most = [0; 5];
        for layout in layouts {
            for (most, bytes) in most.iter_mut().zip(bytes(layout)) {
                *most = bytes.max(*most);
            }
        }
        for bytes in most {
            let memory = backend.allocate(kind, bytes.max(1))?;
            self.memory.push(memory);
        }
        for _ in 0..2 {
            self.events.push(backend.event_create()?);
        }
        Ok(())
    }

    /// Returns the matrices of a GEMM for which the resources were made.
    pub(super) fn operands(&self, layout: &GemmLayout) -> GemmOperands {
        let at = |index: usize| self.memory[index].address;
        let optional = |is: u32, index: usize| match is {
            0 => DeviceAddress::NULL,
            _ => at(index),
        };
        GemmOperands {
            a: at(0),
            b: at(1),
            c: at(2),
            bias: optional(layout.bias, 3),
            addend: optional(layout.addend, 4),
        }
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

/// Returns the bytes of `A`, `B`, `C`, bias and addend.
fn bytes(layout: &GemmLayout) -> [u64; 5] {
    let &GemmLayout { m, n, k, .. } = layout;
    let lines = match layout.b_order {
        MatrixOrderCode::COLUMNS => n,
        _ => k,
    };
    let elements = [
        m * layout.a_stride,
        lines * layout.b_stride,
        m * layout.c_stride,
        n * u64::from(layout.bias),
        m * n * u64::from(layout.addend),
    ];
    elements.map(|elements| elements * layout.element.bytes())
}
