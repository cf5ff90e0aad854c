//! The built-in kernels, which are loaded when a device is opened.

use crate::current::Ordinal;
use crate::modules;
use crate::runtime::constants::result::SUCCESS;
use crate::runtime::table::{Function, Module};
use std::ptr::with_exposed_provenance_mut;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::{Current, Kernels};
use symmem_kernels_hip::{AlignedBytes, Target, decompress_all};

/// A built-in kernel: the runtime's handle, as a number.
#[derive(Clone, Copy)]
pub struct Kernel(usize);

impl Kernel {
    pub fn function(self) -> Function {
        with_exposed_provenance_mut(self.0)
    }
}

/// The loaded modules of a device; unloads them when dropped.
pub struct Modules {
    device: Ordinal,
    /// Each with its image, which the runtime keeps reading.
    loaded: Vec<(Module, AlignedBytes)>,
    /// Their kernels, sorted. Unlike a program's kernels they take a `Launch` before their struct.
    kernels: Vec<usize>,
}

// SAFETY: the runtime accepts a module's handle on any thread.
unsafe impl Send for Modules {}
// SAFETY: as for `Send`.
unsafe impl Sync for Modules {}

impl Modules {
    /// Returns whether a function is one of these kernels.
    pub fn have(&self, function: Function) -> bool {
        self.kernels.binary_search(&function.addr()).is_ok()
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        // Failures cannot be reported here, and must not keep other modules loaded.
        let _entered = self.device.enter();
        for (module, image) in self.loaded.drain(..) {
            // SAFETY: `load` loaded this module, and it is unloaded only here. The device is being closed, so
            // none of its kernels runs.
            let code = unsafe { (self.device.runtime.table.hipModuleUnload)(module) };
            if code != SUCCESS {
                // The runtime may still have the module, and read its image.
                std::mem::forget(image);
            }
        }
    }
}

/// Loads every module of a target.
///
/// # Errors
/// [`Status::CALL_FAILED`] for an image that does not decompress; the runtime's failure. Both name the module,
/// or the kernel.
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
        // SAFETY: the device is current, and the code is built-in. The image is kept below until the module is
        // unloaded; moving it does not move its bytes.
        let raw = unsafe { modules::load(device.runtime, &image) }.map_err(named)?;
        modules.loaded.push((raw, image));
        for entry in module.entries_of(target) {
            // SAFETY: the module was loaded above, for the current device.
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
