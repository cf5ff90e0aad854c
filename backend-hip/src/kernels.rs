//! The backend's own kernels, loaded when a device is opened.

use crate::current::Ordinal;
use crate::modules;
use crate::runtime::table::{Function, Module};
use std::ptr::with_exposed_provenance_mut;
use symmem_core::backend::CallResult;
use symmem_gpu::{Current, Kernels};
use symmem_kernels_hip::Target;

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
    loaded: Vec<Module>,
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
        for &module in &self.loaded {
            // SAFETY: loaded by `load` and unloaded only here; the instance is closing, so no kernel of
            // it runs.
            unsafe { (self.device.runtime.table.hipModuleUnload)(module) };
        }
    }
}

/// Loads every module for a target.
///
/// # Errors
/// The runtime's, naming module and kernel.
pub fn load(device: Ordinal, target: Target) -> CallResult<(Modules, Kernels<Kernel>)> {
    let _entered = device.enter()?;
    let mut modules = Modules {
        device,
        loaded: Vec::new(),
        kernels: Vec::new(),
    };
    let mut by_name = Vec::new();
    for module in symmem_kernels_hip::modules() {
        let object = module.object(target);
        // SAFETY: the device is current; the code is ours and lives as long as the program.
        let raw = unsafe { modules::load(device.runtime, object) }.map_err(|mut failure| {
            let (name, target) = (module.name, target.name());
            failure.message = format!("module {name} for {target}: {}", failure.message);
            failure
        })?;
        modules.loaded.push(raw);
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
