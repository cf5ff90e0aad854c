//! The backend's own kernels, loaded when a device is opened.

use crate::current::Ordinal;
use crate::modules;
use crate::runtime::constants::result::SUCCESS;
use crate::runtime::table::{Function, Module};
use std::ptr::with_exposed_provenance_mut;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::{Current, Kernels};
use symmem_kernels_hip::{AlignedBytes, Target, decompress_all};

/// A kernel of ours: the runtime's handle, as a number.
#[derive(Clone, Copy)]
pub struct Kernel(usize);

impl Kernel {
    pub fn function(self) -> Function {
        with_exposed_provenance_mut(self.0)
    }
}

/// The modules of one open device; unloaded on drop.
pub struct Modules {
    device: Ordinal,
    /// With the images that they were loaded from: the runtime keeps reading them.
    loaded: Vec<(Module, AlignedBytes)>,
    /// The kernels in them, sorted: they take more than the struct that a launch names.
    kernels: Vec<usize>,
}

// SAFETY: modules are handles that the runtime lets any thread use.
unsafe impl Send for Modules {}
// SAFETY: as above.
unsafe impl Sync for Modules {}

impl Modules {
    /// Whether a function is one of these kernels.
    pub fn have(&self, function: Function) -> bool {
        self.kernels.binary_search(&function.addr()).is_ok()
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        // Nobody is left to tell of failures, and each module is tried whatever became of the others.
        let _entered = self.device.enter();
        for (module, image) in self.loaded.drain(..) {
            // SAFETY: loaded by `load` and unloaded only here; the instance is closing, so no kernel of
            // it runs.
            let code = unsafe { (self.device.runtime.table.hipModuleUnload)(module) };
            if code != SUCCESS {
                // The runtime may still have the module, and read its image.
                std::mem::forget(image);
            }
        }
    }
}

/// Loads every module for a target.
///
/// # Errors
/// [`Status::CALL_FAILED`] for an image that does not decompress, and the runtime's; both name the module or kernel.
pub fn load(device: Ordinal, target: Target) -> CallResult<(Modules, Kernels<Kernel>)> {
    let _entered = device.enter()?;
    let mut modules = Modules {
        device,
        loaded: Vec::new(),
        kernels: Vec::new(),
    };
    let mut by_name = Vec::new();
    let all = symmem_kernels_hip::modules();
    let objects: Vec<_> = all.iter().map(|module| module.object(target)).collect();
    for (module, image) in all.iter().zip(decompress_all(&objects)) {
        let named = |mut failure: Failure| {
            let (name, target) = (module.name, target.name());
            failure.message = format!("module {name} for {target}: {}", failure.message);
            failure
        };
        let image = image.map_err(|cause| {
            let message = format!("{cause}; build or install the program again");
            named(Failure::new(Status::CALL_FAILED, "decompress", message))
        })?;
        // SAFETY: the device is current and the code is ours. The image is kept below, until the module is
        // unloaded; moving it does not move its bytes.
        let raw = unsafe { modules::load(device.runtime, &image) }.map_err(named)?;
        modules.loaded.push((raw, image));
        for entry in module.entries {
            // SAFETY: loaded just now, on the current device.
            let function =
                unsafe { modules::function(device.runtime, raw, entry.name.as_bytes()) }?;
            by_name.push((entry.name, Kernel(function.expose_provenance())));
        }
    }
    modules.kernels = by_name.iter().map(|(_, kernel)| kernel.0).collect();
    modules.kernels.sort_unstable();
    Ok((modules, Kernels::new(by_name)?))
}

#[cfg(test)]
mod tests {
    use symmem_gpu::kernels::argument_bytes;

    #[test]
    fn kernels_take_the_structs_that_they_are_launched_with_save_those_of_bulk_copies() {
        let all = || symmem_kernels_hip::modules().iter().flat_map(|m| m.entries);
        for (name, bytes) in argument_bytes() {
            let entry = all().find(|entry| entry.name == name);
            let found = entry.map(|entry| entry.argument_bytes as usize);
            let expected = (name != "symmem_copy_bulk").then_some(bytes);
            assert_eq!(found, expected, "{name}");
        }
    }
}
