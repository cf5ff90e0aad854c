//! The backend's own kernels, chosen for the device and loaded when it is opened.

use crate::context::Context;
use crate::driver::Driver;
use crate::driver::constants::result::NO_BINARY_FOR_GPU;
use crate::modules;
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::sync::Arc;
use symmem_core::backend::abi::{MulticastSupport, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::{Current, Kernels};
use symmem_kernels_ptx::{AlignedBytes, CorruptImage, Image, Module, Multicast, decompress_all};

/// The driver from which on a graph can hold an edge between kernels that overlap (`CUgraphEdgeData`):
/// before it, a dependent launch has no place in a capture.
const GRAPHS_HOLD_DEPENDENT_LAUNCHES: u32 = 12_030;

/// A kernel of ours.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// The driver's handle.
    pub function: CUfunction,
    /// Whether it may start beside its predecessor: it waits for it before it touches memory, and the
    /// driver lets such a launch be captured.
    pub beside: bool,
}

// SAFETY: a function is a handle that the driver lets any thread use.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// The modules of one open device; unloaded on drop.
pub struct Modules {
    driver: &'static Driver,
    context: Arc<Context>,
    loaded: Vec<CUmodule>,
}

// SAFETY: modules are handles that the driver lets any thread use.
unsafe impl Send for Modules {}
// SAFETY: as above.
unsafe impl Sync for Modules {}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.loaded.is_empty() {
            return;
        }
        // Nobody is left to tell of failures, and each module is tried whatever became of the others.
        let _entered = self.context.enter();
        for &module in &self.loaded {
            // SAFETY: loaded by `load` and unloaded only here; the instance is closing, so no kernel of
            // it runs.
            unsafe { (self.driver.table.cuModuleUnload)(module) };
        }
    }
}

/// Loads every module that the architecture can run, of those for multicast the one that is `multicast`.
/// `shared_bytes` is the device's most shared memory for one block.
///
/// # Errors
/// [`Status::CALL_FAILED`] for an image that does not decompress, and the driver's; both name the module or kernel.
pub fn load(
    driver: &'static Driver,
    context: &Arc<Context>,
    architecture: u32,
    shared_bytes: u32,
    multicast: MulticastSupport,
) -> CallResult<(Modules, Kernels<Kernel>)> {
    let _entered = context.enter()?;
    let mut modules = Modules {
        driver,
        context: context.clone(),
        loaded: Vec::new(),
    };
    let mut by_name = Vec::new();
    let (chosen, images): (Vec<_>, Vec<_>) = symmem_kernels_ptx::modules()
        .iter()
        .filter(|module| is_wanted(module, multicast))
        .filter_map(|module| Some((module, module.choose(architecture)?.compressed())))
        .unzip();
    for (module, image) in chosen.into_iter().zip(decompress_all(&images)) {
        let raw = load_module(driver, module, image)?;
        modules.loaded.push(raw);
        for entry in module.entries {
            // SAFETY: loaded just now, in the current context.
            let function =
                unsafe { modules::function(driver, raw, entry.name.as_bytes(), shared_bytes) }?;
            let beside = entry.dependent_launch && driver.version >= GRAPHS_HOLD_DEPENDENT_LAUNCHES;
            by_name.push((entry.name, Kernel { function, beside }));
        }
    }
    Ok((modules, Kernels::new(by_name)?))
}

/// Whether a module is to be loaded: those for multicast have the same kernels, by a switch and without, but for
/// those of 8-bit floats, which only a switch has, and only on the architecture that their module is for.
fn is_wanted(module: &Module, multicast: MulticastSupport) -> bool {
    let support = match module.multicast {
        Multicast::None => return true,
        Multicast::Hardware => MulticastSupport::HARDWARE,
        Multicast::Emulated => MulticastSupport::EMULATED,
    };
    multicast == support
}

/// Loads the image chosen for the architecture, or the PTX where the driver will not have machine
/// code. Context current.
fn load_module(
    driver: &Driver,
    module: &Module,
    image: Result<AlignedBytes, CorruptImage>,
) -> CallResult<CUmodule> {
    let load = |image: Result<AlignedBytes, CorruptImage>| {
        let image = image.map_err(corrupt)?;
        // SAFETY: the caller made the context current; the code is ours, and decompressed PTX ends with a zero
        // byte.
        unsafe { modules::load(driver, &image) }
    };
    match load(image) {
        Err(failure) if failure.vendor_code == NO_BINARY_FOR_GPU as i32 => {
            load(module.ptx.decompress())
        }
        other => other,
    }
    .map_err(|mut failure| {
        failure.message = format!("module {}: {}", module.name, failure.message);
        failure
    })
}

/// The failure of an image that does not decompress.
fn corrupt(cause: CorruptImage) -> Failure {
    let message = format!("{cause}; build or install the program again");
    Failure::new(Status::CALL_FAILED, "decompress", message)
}

/// Which code a module is loaded from on an architecture, in words; `None` where another module has
/// its kernels.
pub fn origin(module: &Module, architecture: u32) -> Option<String> {
    let runs = |other: &&Module| other.choose(architecture).is_some();
    let has_them = |other: &Module| {
        let has = |name| other.entries.iter().any(|entry| entry.name == name);
        module.entries.iter().all(|entry| has(entry.name))
    };
    Some(match module.choose(architecture) {
        Some(Image::Cubin(built, _)) => format!("cubin sm_{built}"),
        Some(Image::Ptx(_)) => "PTX, compiled by the driver".into(),
        None if symmem_kernels_ptx::modules()
            .iter()
            .filter(runs)
            .any(has_them) =>
        {
            return None;
        }
        None => format!("none (needs sm_{})", module.minimum_architecture),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use symmem_core::backend::abi::MulticastArguments;
    use symmem_gpu::kernels::argument_bytes;
    use symmem_kernels_ptx::CompressedImage;

    #[test]
    fn kernels_take_the_structs_that_they_are_launched_with() {
        let all = || symmem_kernels_ptx::modules().iter().flat_map(|m| m.entries);
        for (name, bytes) in argument_bytes() {
            let entry = all().find(|entry| entry.name == name).expect(&name);
            assert_eq!(entry.argument_bytes as usize, bytes, "{name}");
        }
        let multicast = all().filter(|entry| entry.name.starts_with("symmem_multicast_"));
        for entry in multicast {
            let bytes = size_of::<MulticastArguments>();
            assert_eq!(entry.argument_bytes as usize, bytes, "{}", entry.name);
        }
    }

    #[test]
    fn kernels_for_multicast_are_loaded_by_what_there_is_of_it_and_no_others() {
        let wanted = |multicast| {
            let modules = symmem_kernels_ptx::modules().iter();
            let wanted = modules.filter(|module| is_wanted(module, multicast));
            let names = wanted.map(|module| module.name);
            names
                .filter(|name| name.starts_with("multicast"))
                .collect::<Vec<_>>()
        };
        assert_eq!(wanted(MulticastSupport::NONE), [""; 0]);
        let hardware = ["multicast", "multicast_f8"];
        assert_eq!(wanted(MulticastSupport::HARDWARE), hardware);
        let emulated = ["multicast_emulated", "multicast_emulated_sm_80"];
        assert_eq!(wanted(MulticastSupport::EMULATED), emulated);
    }

    #[test]
    fn a_corrupt_image_fails_the_opening_of_a_device_and_says_so() {
        let image = CompressedImage::text(b"damaged").decompress();
        let failure = corrupt(image.expect_err("no frame begins like that"));
        assert_eq!(failure.status, Status::CALL_FAILED);
        let said = failure.to_string();
        let (begin, end) = (
            "decompress failed: corrupt kernel image: ",
            "build or install the program again",
        );
        assert!(said.starts_with(begin) && said.ends_with(end), "{said}");
    }

    #[test]
    fn a_device_is_told_of_each_kernel_once() {
        let told = |name: &str, architecture| {
            let mut modules = symmem_kernels_ptx::modules().iter();
            let module = modules.find(|module| module.name == name).expect(name);
            origin(module, architecture)
        };
        assert_eq!(told("signals", 90).as_deref(), Some("cubin sm_90"));
        assert_eq!(told("signals_sm_80", 90), None);
        assert_eq!(told("signals", 86), None);
        assert_eq!(told("signals_sm_80", 86).as_deref(), Some("cubin sm_80"));
        assert_eq!(told("bulk", 86).as_deref(), Some("none (needs sm_90)"));
    }
}
