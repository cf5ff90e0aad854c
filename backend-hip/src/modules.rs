//! Loads device code.
//!
//! The runtime loads a code object completely when it gets it, for the current device. Nothing is left for the
//! first launch, which could otherwise wait for a device that a waiting kernel keeps busy.

use crate::runtime::table::{Function, Module};
use crate::runtime::{Runtime, hip};
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_kernels_hip::AlignedBytes;

/// Loads a code object, or a bundle of code objects.
///
/// # Safety
/// The device is current. The image is complete, its code is safe to run, and it stays in place until the
/// module is unloaded, because the runtime keeps reading it.
pub unsafe fn load(runtime: &Runtime, image: &[u8]) -> CallResult<Module> {
    let mut module = null_mut();
    let image = image.as_ptr().cast();
    // SAFETY: the out-pointer is writable, and the caller passes a complete image.
    unsafe { hip!(runtime, hipModuleLoadData(&raw mut module, image)) }?;
    Ok(module)
}

/// Finds a kernel by name.
///
/// # Safety
/// The module is live and its device current.
pub unsafe fn function(runtime: &Runtime, module: Module, name: &[u8]) -> CallResult<Function> {
    let name = CString::new(name).map_err(|_| {
        let reason = "the kernel's name contains a zero byte";
        Failure::new(Status::INVALID_ARGUMENT, "hipModuleGetFunction", reason)
    })?;
    let mut found = null_mut();
    // SAFETY: the out-pointer is writable, the name ends with a zero byte, and the caller passes a live module.
    unsafe {
        hip!(
            runtime,
            hipModuleGetFunction(&raw mut found, module, name.as_ptr())
        )
    }
    .map_err(|failure| Failure {
        message: format!("kernel {}: {}", name.to_string_lossy(), failure.message),
        ..failure
    })?;
    Ok(found)
}

/// Copies of the images of the program's own modules.
#[derive(Default)]
pub struct Images(Mutex<HashMap<u64, AlignedBytes>>);

impl Images {
    /// Loads a copy of `code`, and keeps the copy until [`Images::unload`].
    ///
    /// # Safety
    /// As [`load`], except that the caller need not keep `code`.
    pub unsafe fn load(&self, runtime: &Runtime, code: &[u8]) -> CallResult<Module> {
        let copy = AlignedBytes::from(code);
        // SAFETY: the caller upholds the contract of `load`. The copy is kept below, and moving it does not
        // move its bytes.
        let module = unsafe { load(runtime, &copy) }?;
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.insert(module.addr() as u64, copy);
        Ok(module)
    }

    /// Unloads a module, then drops its image. If unloading fails, keeps the image: the runtime may still have
    /// the module, and read it.
    ///
    /// # Errors
    /// The failure of `unload`.
    pub fn unload(
        &self,
        module: Module,
        unload: impl FnOnce() -> CallResult<()>,
    ) -> CallResult<()> {
        unload()?;
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.remove(&(module.addr() as u64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;

    #[test]
    fn the_image_of_a_module_that_could_not_be_unloaded_stays() {
        let (images, module) = (Images::default(), without_provenance_mut(64));
        let kept = |images: &Images| images.0.lock().unwrap().len();
        let image = AlignedBytes::zeroed(64);
        images.0.lock().unwrap().insert(64, image);
        let failure = Failure::new(Status::CALL_FAILED, "hipModuleUnload", "");
        let told = images.unload(module, || Err(failure.clone()));
        assert_eq!((told, kept(&images)), (Err(failure), 1));
        assert_eq!(
            (images.unload(module, || Ok(())), kept(&images)),
            (Ok(()), 0)
        );
    }
}
