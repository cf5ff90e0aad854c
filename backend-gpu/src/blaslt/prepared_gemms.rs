//! The GEMMs of one open device.

use super::BlasLtApi;
use super::prepared_gemm::{Opaque, PreparedGemm, check_shape, invalid};
use std::collections::HashMap;
use std::ptr::with_exposed_provenance;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;

/// The prepared GEMMs of one open device.
#[derive(Default)]
pub struct PreparedGemms {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The library and its handle for the device; created by the first call.
    instance: Option<(&'static BlasLtApi, Opaque)>,
    /// By address, which is the handle that callers have.
    live: HashMap<u64, Arc<PreparedGemm>>,
}

impl PreparedGemms {
    /// Returns the library's description. Device current.
    ///
    /// # Errors
    /// The library's failure; `LIBRARY_MISSING` if it is too old.
    pub fn describe(&self, library: &'static BlasLtApi) -> CallResult<LibraryDescription> {
        let instance = self.instance(library)?;
        library.description(instance.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code leaves the state half changed under the lock, so it is whole after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instance(&self, library: &'static BlasLtApi) -> CallResult<Opaque> {
        let mut state = self.state();
        if let Some((_, instance)) = state.instance {
            return Ok(instance);
        }
        let instance = Opaque(library.instance()?);
        // Kept even if `version_of` later finds it too old: `close` destroys it.
        state.instance = Some((library, instance));
        Ok(instance)
    }

    /// Prepares a GEMM. Gets its workspace from `allocate`, and passes it to `free` if preparing fails. Device
    /// current.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an invalid shape; `UNSUPPORTED` if the library has no algorithm for it; the
    /// library's failure.
    pub fn prepare(
        &self,
        library: &'static BlasLtApi,
        shape: &GemmLayout,
        allocate: impl FnOnce(u64) -> CallResult<SharedAllocation>,
        free: impl FnOnce(RawAllocation) -> CallResult<()>,
    ) -> CallResult<RawGemm> {
        check_shape(shape)?;
        let instance = self.instance(library)?;
        library.version_of(instance.0)?;
        let mut prepared_gemm = PreparedGemm::new(library, instance, shape);
        if let Err(failure) = prepared_gemm.fill(allocate) {
            // Report the first failure only.
            let _ = prepared_gemm.release(free);
            return Err(failure);
        }
        let prepared_gemm = Arc::new(prepared_gemm);
        let handle = Arc::as_ptr(&prepared_gemm).expose_provenance() as u64;
        self.state().live.insert(handle, prepared_gemm);
        Ok(RawGemm(handle))
    }

    /// Returns the number of heuristic candidates.
    ///
    /// # Safety
    /// `gemm` is live.
    pub unsafe fn candidates(gemm: RawGemm) -> u32 {
        // SAFETY: the caller passes a live handle and upholds the contract of `Gemm::gemm`.
        unsafe { prepared_gemm(gemm) }.candidates()
    }

    /// Enqueues a GEMM. Device current. Does not allocate.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown candidate or operands that it cannot take; the library's failure.
    ///
    /// # Safety
    /// As [`symmem_core::backend::Gemm::gemm`].
    pub unsafe fn run(
        gemm: RawGemm,
        candidate: u32,
        operands: &GemmOperands,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live handle and upholds the contract of `Gemm::gemm`.
        unsafe { prepared_gemm(gemm).run(candidate, operands, on) }
    }

    /// Releases a GEMM and passes its workspace to `free`. Makes every step even if the device cannot be made current.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the handle is not live here; else the first failure, after every step was tried.
    ///
    /// # Safety
    /// As [`symmem_core::backend::Gemm::gemm_release`].
    pub unsafe fn release(
        &self,
        gemm: RawGemm,
        free: impl FnOnce(RawAllocation) -> CallResult<()>,
    ) -> CallResult<()> {
        let found = self.state().live.remove(&gemm.0);
        let prepared_gemm = found.ok_or_else(|| {
            invalid(
                "gemm_release",
                "this GEMM was given up already, or belongs to another instance".into(),
            )
        })?;
        prepared_gemm.release(free)
    }

    /// Returns whether [`PreparedGemms::close`] has something to release.
    pub fn is_open(&self) -> bool {
        self.state().instance.is_some()
    }

    /// Releases the remaining GEMMs and the library's handle. Does not free workspaces: they are freed with the
    /// device's memory. The device should be current.
    pub fn close(&self) {
        let mut state = self.state();
        // Nobody is left to report failures to.
        for (_, prepared_gemm) in state.live.drain() {
            let _ = prepared_gemm.release(|_| Ok(()));
        }
        if let Some((library, instance)) = state.instance.take() {
            // SAFETY: the handle was live until now, and all of its GEMMs are released.
            let _ = unsafe { (library.table.destroy)(instance.0) };
        }
    }
}

/// Returns the GEMM behind a handle.
///
/// # Safety
/// The handle came from [`PreparedGemms::prepare`] and was not released.
unsafe fn prepared_gemm<'a>(gemm: RawGemm) -> &'a PreparedGemm {
    // SAFETY: the caller says that the handle is live, so the list still holds the GEMM; nothing borrows it mutably.
    unsafe { &*with_exposed_provenance(gemm.0 as usize) }
}
