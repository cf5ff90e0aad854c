//! Resources of the timing of GEMMs.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Device, RemoteAccess as _, SymmetricMemory};
use crate::base::error::Result;
use crate::rank::driver::Driver;
use crate::rank::release::Held;
use crate::rank::side::ClosingStream;
use crate::rank::streams::KnownStream;
use crate::world::world::World;

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

    /// Fills `A`, `B`, bias and addend with random numbers: a device that multiplies zeros needs less power, so it is faster,
    /// and other candidates are the fastest.
    ///
    /// # Errors
    /// The backend's errors, and if streams that are being captured do not allow the copies.
    pub(super) fn fill(&self, shared: &World) -> Result<()> {
        let Some(stream) = self.stream else {
            return Ok(());
        };
        let first = random_elements();
        let sources = self.memory.iter().enumerate().filter(|(at, _)| *at != C);
        for (_, memory) in sources {
            let bytes = memory.bytes.min(first.len() as u64);
            shared
                .staging
                .write(shared, memory.address, &first[..bytes as usize])?;
            let mut filled = bytes;
            while filled < memory.bytes {
                let next = filled.min(memory.bytes - filled);
                let to = DeviceAddress(memory.address.0 + filled);
                let copy = Transfer::by_engine(to, memory.address, next);
                // SAFETY: both ranges are in this memory, and do not overlap; the stream is waited for before it is freed.
                unsafe { shared.backend.transfer(&copy, stream) }
                    .map_err(|failure| shared.failed("GEMM timing", failure))?;
                filled += next;
            }
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
            c: at(C),
            bias: optional(layout.bias, 3),
            addend: optional(layout.addend, 4),
            scale: DeviceAddress::NULL,
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

/// The place of `C` among the matrices.
const C: usize = 2;

/// Returns numbers of both signs: between 1 and 2 as f16, between 1/128 and 2 as bf16, and up to 1.9 as 8-bit floats.
fn random_elements() -> Vec<u8> {
    const COUNT: usize = 128 << 10;
    let mut state: u64 = 1;
    let mut element = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let bits = (state >> 40) as u16;
        0x3c00 | bits & 0x83bf
    };
    (0..COUNT).flat_map(|_| element().to_ne_bytes()).collect()
}

/// Returns the bytes of `A`, `B`, `C`, bias and addend.
fn bytes(layout: &GemmLayout) -> [u64; 5] {
    let &GemmLayout { m, n, k, .. } = layout;
    let lines = match layout.b_order {
        MatrixOrderCode::COLUMNS => n,
        _ => k,
    };
    let (element, output) = (layout.element.bytes(), layout.output().bytes());
    [
        m * layout.a_stride * element,
        lines * layout.b_stride * element,
        m * layout.c_stride * output,
        n * u64::from(layout.bias) * output,
        m * n * u64::from(layout.addend) * output,
    ]
}
