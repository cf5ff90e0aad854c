//! GEMMs that cuBLASLt or hipBLASLt has prepared.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Failure, Gemm};
use crate::base::error::{Error, Result};
use crate::gemm::scratch::Scratch;
use crate::gemm::streams::GemmStream;
use crate::rank::context::Context;
use crate::rank::driver::Driver;
use crate::rank::release::Held;

/// Turns a failure to prepare or run a GEMM into an error. Only a lost context counts as a fault of the device:
/// no rank waits for the GEMM.
pub(super) fn refused(shared: &Context, name: &'static str, failure: Failure) -> Error {
    match failure.status {
        Status::CONTEXT_LOST => shared.failed(name, failure),
        _ => Error::backend(shared.rank, name, failure),
    }
}

/// A GEMM that the library has prepared, for a shape and one stream.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    pub(crate) layout: GemmLayout,
    pub(crate) on: GemmStream,
    pub(crate) raw: RawGemm,
    /// Index of the heuristic candidate to use.
    pub(crate) candidate: u32,
    /// The stored candidate, if a tuning row has one; it is not timed.
    pub(crate) stored: Option<u32>,
    /// Whether the candidate was stored or timed; otherwise it is the library's first.
    pub(crate) known: bool,
}

/// The prepared GEMMs of an operation.
#[derive(Default)]
pub(crate) struct PreparedGemms {
    pub(crate) list: Vec<Prepared>,
    /// The resources of a timing that was broken off, which may still be in use.
    pub(crate) scratch: Option<Scratch>,
}

impl PreparedGemms {
    /// Prepares a GEMM for a stream, if it is not prepared yet. `stored` returns the candidate that a tuning row names.
    ///
    /// # Errors
    /// The backend's errors.
    pub(crate) fn prepare(
        &mut self,
        shared: &Context,
        layout: GemmLayout,
        on: GemmStream,
        name: &'static str,
        stored: impl FnOnce(RawGemm) -> Option<u32>,
    ) -> Result<()> {
        if self.find(&layout, on).is_some() {
            return Ok(());
        }
        let raw = shared.backend.gemm_prepare(&layout);
        let raw = raw.map_err(|failure| refused(shared, name, failure))?;
        let stored = stored(raw);
        self.list.push(Prepared {
            layout,
            on,
            raw,
            candidate: stored.unwrap_or(0),
            stored,
            known: stored.is_some(),
        });
        Ok(())
    }

    fn find(&self, layout: &GemmLayout, on: GemmStream) -> Option<&Prepared> {
        let known = |prepared: &&Prepared| prepared.layout == *layout && prepared.on == on;
        self.list.iter().find(known)
    }

    /// Enqueues a prepared GEMM.
    ///
    /// # Safety
    /// As [`Gemm::gemm`].
    pub(crate) unsafe fn multiply(
        &self,
        backend: &Backend,
        (layout, on): (&GemmLayout, GemmStream),
        operands: &GemmOperands,
        stream: RawStream,
    ) -> CallResult<()> {
        let Some(prepared) = self.find(layout, on) else {
            let rows = layout.m;
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "gemm",
                format!(
                    "no GEMM of {rows} rows was prepared for the {on}; this is a bug in symmem, please report it"
                ),
            ));
        };
        // SAFETY: prepared GEMMs live as long as this; the caller guarantees the rest.
        unsafe { backend.gemm(prepared.raw, prepared.candidate, operands, stream) }
    }

    /// Releases the GEMMs, which no stream or graph uses any more; logs failures. Returns the stream of a timing that was
    /// broken off, to be closed.
    pub(crate) fn release(&self, driver: &Driver) -> Option<Held> {
        for prepared in &self.list {
            // SAFETY: prepared above; the caller says that nothing uses it any more.
            if let Err(failure) = unsafe { driver.backend.gemm_release(prepared.raw) } {
                tracing::warn!(rank = driver.rank, %failure, "gemm_release failed");
            }
        }
        self.scratch
            .as_ref()
            .and_then(|scratch| scratch.release(driver))
    }
}
