//! The backend's own kernels, chosen for the device and loaded when it is opened.

use crate::context::Context;
use crate::driver::Driver;
use crate::driver::constants::result::NO_BINARY_FOR_GPU;
use crate::modules;
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::sync::Arc;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_kernels_ptx::{Image, Module};

/// The driver from which on a graph can hold an edge between kernels that overlap (`CUgraphEdgeData`):
/// before it, a dependent launch has no place in a capture.
const GRAPHS_HOLD_DEPENDENT_LAUNCHES: u32 = 12_030;

/// The kernels of one open device; unloaded on drop.
pub struct Kernels {
    driver: &'static Driver,
    context: Arc<Context>,
    modules: Vec<CUmodule>,
    by_name: Vec<(&'static str, CUfunction)>,
    /// Put or get by 16-byte loads and stores.
    pub copy_vector: CUfunction,
    /// Put or get by TileScale's published method.
    pub copy_unrolled: CUfunction,
    /// Put or get by bulk copies, where the architecture has them.
    pub copy_bulk: Option<CUfunction>,
    /// Whether the bulk kernel may start beside its predecessor: it waits for it before it touches
    /// memory, and the driver lets such a launch be captured.
    pub copy_bulk_dependent: bool,
    /// Gives a signal.
    pub signal: CUfunction,
    /// Waits for a signal.
    pub wait: CUfunction,
    /// A barrier of all ranks.
    pub barrier: CUfunction,
}

// SAFETY: modules and functions are handles that the driver lets any thread use.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

/// Modules while they are being loaded; unloaded on drop unless taken.
struct Loading<'a> {
    driver: &'static Driver,
    context: &'a Context,
    modules: Vec<CUmodule>,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        unload(self.driver, self.context, &self.modules);
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        unload(self.driver, &self.context, &self.modules);
    }
}

fn unload(driver: &Driver, context: &Context, modules: &[CUmodule]) {
    if modules.is_empty() {
        return;
    }
    // Nobody is left to tell of failures, and each module is tried whatever became of the others.
    let _entered = context.enter();
    for &module in modules {
        // SAFETY: loaded by `Kernels::load` and unloaded only here; the instance is closing, so no
        // kernel of it runs.
        unsafe { (driver.table.cuModuleUnload)(module) };
    }
}

impl Kernels {
    /// Loads every module that the architecture can run. `shared_bytes` is the device's most
    /// shared memory for one block.
    ///
    /// # Errors
    /// The driver's, naming module and kernel.
    pub fn load(
        driver: &'static Driver,
        context: &Arc<Context>,
        architecture: u32,
        shared_bytes: u32,
    ) -> CallResult<Self> {
        let _entered = context.enter()?;
        let mut loading = Loading {
            driver,
            context,
            modules: Vec::new(),
        };
        let mut by_name = Vec::new();
        for module in symmem_kernels_ptx::modules() {
            let Some(image) = module.choose(architecture) else {
                continue;
            };
            let raw = load_module(driver, module, image)?;
            loading.modules.push(raw);
            for entry in module.entries {
                // SAFETY: loaded just now, in the current context.
                let function =
                    unsafe { modules::function(driver, raw, entry.name.as_bytes(), shared_bytes) }?;
                by_name.push((entry.name, function));
            }
        }
        Ok(Self {
            driver,
            context: context.clone(),
            copy_vector: find(&by_name, "symmem_copy_vector")?,
            copy_unrolled: find(&by_name, "symmem_copy_unrolled")?,
            copy_bulk: find(&by_name, "symmem_copy_bulk").ok(),
            copy_bulk_dependent: driver.version >= GRAPHS_HOLD_DEPENDENT_LAUNCHES
                && symmem_kernels_ptx::modules()
                    .iter()
                    .flat_map(|module| module.entries)
                    .any(|entry| entry.name == "symmem_copy_bulk" && entry.dependent_launch),
            signal: find(&by_name, "symmem_signal")?,
            wait: find(&by_name, "symmem_wait")?,
            barrier: find(&by_name, "symmem_barrier")?,
            modules: std::mem::take(&mut loading.modules),
            by_name,
        })
    }

    /// A kernel by its name in `device/`.
    pub fn by_name(&self, name: &[u8]) -> CallResult<CUfunction> {
        let name = String::from_utf8_lossy(name);
        find(&self.by_name, &name)
    }
}

fn find(by_name: &[(&'static str, CUfunction)], name: &str) -> CallResult<CUfunction> {
    by_name
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, function)| function)
        .ok_or_else(|| {
            Failure::new(
                Status::UNSUPPORTED,
                "builtin_function",
                format!("this device has no built-in kernel {name}"),
            )
        })
}

/// Loads the image chosen for the architecture, or the PTX where the driver will not have machine
/// code. Context current.
fn load_module(driver: &Driver, module: &Module, image: Image) -> CallResult<CUmodule> {
    // SAFETY: the caller made the context current; the code is ours.
    let load = |bytes| unsafe { modules::load(driver, bytes) };
    match load(image.bytes()) {
        Err(failure) if failure.vendor_code == NO_BINARY_FOR_GPU as i32 => load(module.ptx),
        other => other,
    }
    .map_err(|mut failure| {
        failure.message = format!("module {}: {}", module.name, failure.message);
        failure
    })
}

/// Which code a module is loaded from on an architecture, in words.
pub fn origin(module: &Module, architecture: u32) -> String {
    match module.choose(architecture) {
        Some(Image::Cubin(built, _)) => format!("cubin sm_{built}"),
        Some(Image::Ptx(_)) => "PTX, compiled by the driver".into(),
        None => format!("none (needs sm_{})", module.minimum_architecture),
    }
}

#[cfg(test)]
mod tests {
    use symmem_core::backend::abi::{
        Barrier, LatencyArguments, SignalTarget, SignalWait, TransferArguments,
    };

    #[test]
    fn kernels_take_the_structs_that_they_are_launched_with() {
        for (name, bytes) in [
            ("symmem_copy_vector", size_of::<TransferArguments>()),
            ("symmem_copy_unrolled", size_of::<TransferArguments>()),
            ("symmem_copy_bulk", size_of::<TransferArguments>()),
            ("symmem_signal", size_of::<SignalTarget>()),
            ("symmem_wait", size_of::<SignalWait>()),
            ("symmem_barrier", size_of::<Barrier>()),
            ("symmem_latency_packet", size_of::<LatencyArguments>()),
            ("symmem_latency_signal", size_of::<LatencyArguments>()),
        ] {
            let mut entries = symmem_kernels_ptx::modules().iter().flat_map(|m| m.entries);
            let entry = entries.find(|entry| entry.name == name).expect(name);
            assert_eq!(entry.argument_bytes as usize, bytes, "{name}");
        }
    }
}
