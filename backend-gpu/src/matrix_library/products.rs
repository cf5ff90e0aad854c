//! The products of one open device.

use super::MatrixLibrary;
use super::product::{Opaque, Product, check_shape, invalid};
use std::collections::HashMap;
use std::ptr::with_exposed_provenance;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;

/// The products of one open device.
#[derive(Default)]
pub struct Products {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The library, and its instance for the device; made by the first call.
    instance: Option<(&'static MatrixLibrary, Opaque)>,
    /// By address.
    live: HashMap<u64, Arc<Product>>,
}

impl Products {
    /// The library's description. Device current.
    ///
    /// # Errors
    /// The library's; `LIBRARY_MISSING` where it is too old.
    pub fn describe(&self, library: &'static MatrixLibrary) -> CallResult<VendorDescription> {
        let instance = self.instance(library)?;
        library.description(instance.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What was there when somebody panicked is whole: nothing is left half done under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instance(&self, library: &'static MatrixLibrary) -> CallResult<Opaque> {
        let mut state = self.state();
        if let Some((_, instance)) = state.instance {
            return Ok(instance);
        }
        let instance = Opaque(library.instance()?);
        // One that is too old is not used, and ended with the device's other things.
        state.instance = Some((library, instance));
        Ok(instance)
    }

    /// Prepares a product; its workspace comes from `allocate`, and goes to `free` where it comes to nothing.
    /// Device current.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a shape that is none; `UNSUPPORTED` where the library has no way; the library's.
    pub fn prepare(
        &self,
        library: &'static MatrixLibrary,
        shape: &GemmShape,
        allocate: impl FnOnce(u64) -> CallResult<SharedAllocation>,
        free: impl FnOnce(RawAllocation) -> CallResult<()>,
    ) -> CallResult<RawGemm> {
        check_shape(shape)?;
        let instance = self.instance(library)?;
        library.version_of(instance.0)?;
        let mut product = Product::new(library, instance, shape);
        if let Err(failure) = product.fill(allocate) {
            // The first failure is the one to tell.
            let _ = product.release(free);
            return Err(failure);
        }
        let product = Arc::new(product);
        let handle = Arc::as_ptr(&product).expose_provenance() as u64;
        self.state().live.insert(handle, product);
        Ok(RawGemm(handle))
    }

    /// How many ways there are.
    ///
    /// # Safety
    /// `gemm` is live.
    pub unsafe fn candidates(gemm: RawGemm) -> u32 {
        // SAFETY: the caller's word.
        unsafe { product(gemm) }.candidates()
    }

    /// Enqueues a product. Device current. Allocates nothing.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another way or operands that it cannot take; the library's.
    ///
    /// # Safety
    /// As [`symmem_core::backend::Gemm::gemm`].
    pub unsafe fn run(
        gemm: RawGemm,
        candidate: u32,
        operands: &GemmOperands,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller's word.
        unsafe { product(gemm).run(candidate, operands, on) }
    }

    /// Gives a product up; its workspace goes to `free`. Device current, as far as it can be.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that is not live here; else the first failure, after all has been tried.
    ///
    /// # Safety
    /// As [`symmem_core::backend::Gemm::gemm_release`].
    pub unsafe fn release(
        &self,
        gemm: RawGemm,
        free: impl FnOnce(RawAllocation) -> CallResult<()>,
    ) -> CallResult<()> {
        let found = self.state().live.remove(&gemm.0);
        let product = found.ok_or_else(|| {
            invalid(
                "gemm_release",
                "it was given up, or is another instance's".into(),
            )
        })?;
        product.release(free)
    }

    /// Whether there is something to give up.
    pub fn is_open(&self) -> bool {
        self.state().instance.is_some()
    }

    /// Gives up what is left; workspaces go with the device's memory. Device current, as far as it can be.
    pub fn close(&self) {
        let mut state = self.state();
        // Nobody is left to tell of failures.
        for (_, product) in state.live.drain() {
            let _ = product.release(|_| Ok(()));
        }
        if let Some((library, instance)) = state.instance.take() {
            // SAFETY: live until now, and its products are given up.
            let _ = unsafe { (library.table.destroy)(instance.0) };
        }
    }
}

/// The product behind a handle.
///
/// # Safety
/// The handle came from [`Products::prepare`] and was not released.
unsafe fn product<'a>(gemm: RawGemm) -> &'a Product {
    // SAFETY: by the caller's word it is still in its list, and nobody has it mutably.
    unsafe { &*with_exposed_provenance(gemm.0 as usize) }
}
