//! The backend's own kernels, chosen for the device and loaded when it is opened.

use crate::context::Context;
use crate::driver::Driver;
use crate::driver::constants::result::NO_BINARY_FOR_GPU;
use crate::modules;
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::sync::Arc;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};

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
            if architecture < module.minimum_architecture {
                continue;
            }
            let raw = load_module(driver, module, architecture)?;
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

/// Loads a module's cubin for the architecture, or its PTX where there is none or the driver will
/// not have it. Context current.
fn load_module(
    driver: &Driver,
    module: &symmem_kernels_ptx::Module,
    architecture: u32,
) -> CallResult<CUmodule> {
    let named = |mut failure: Failure| {
        failure.message = format!("module {}: {}", module.name, failure.message);
        failure
    };
    if let Some((_, cubin)) = cubin(module, architecture) {
        // SAFETY: the caller made the context current; the code is ours.
        match unsafe { modules::load(driver, cubin) } {
            Err(failure) if failure.vendor_code == NO_BINARY_FOR_GPU as i32 => {}
            other => return other.map_err(named),
        }
    }
    // SAFETY: as above.
    unsafe { modules::load(driver, module.ptx) }.map_err(named)
}

/// The best cubin for an architecture: the same major version and the highest minor one not above
/// it, which is what CUDA promises to run.
fn cubin(module: &symmem_kernels_ptx::Module, architecture: u32) -> Option<(u32, &'static [u8])> {
    module
        .cubins
        .iter()
        .copied()
        .filter(|&(built, _)| built / 10 == architecture / 10 && built <= architecture)
        .max_by_key(|&(built, _)| built)
}

/// Which code a module is loaded from on an architecture, in words.
pub fn origin(module: &symmem_kernels_ptx::Module, architecture: u32) -> String {
    if architecture < module.minimum_architecture {
        return format!("none (needs sm_{})", module.minimum_architecture);
    }
    match cubin(module, architecture) {
        Some((built, _)) => format!("cubin sm_{built}"),
        None => "PTX, compiled by the driver".into(),
    }
}
