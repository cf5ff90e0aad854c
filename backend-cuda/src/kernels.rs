//! This backend's kernels: chosen for the device, and loaded when it is opened.

use crate::context::Context;
use crate::driver::Driver;
use crate::driver::constants::result::NO_BINARY_FOR_GPU;
use crate::modules;
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::sync::Arc;
use symmem_core::backend::abi::{MulticastSupportCode, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::{Current, Kernels};
use symmem_kernels_ptx::{AlignedBytes, CorruptImage, Image, Module, Multicast, decompress_all};

/// First driver whose graphs can hold an edge between overlapping kernels (`CUgraphEdgeData`). Older drivers
/// cannot capture a programmatic dependent launch.
const GRAPHS_HOLD_DEPENDENT_LAUNCHES: u32 = 12_030;

/// A kernel of this crate.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// The driver's handle.
    pub function: CUfunction,
    /// Whether it is launched by programmatic dependent launch: it waits for its predecessor before it accesses
    /// memory, and the driver can capture such a launch.
    pub beside: bool,
}

// SAFETY: a function is a handle that the driver accepts on any thread.
unsafe impl Send for Kernel {}
// SAFETY: as for `Send`.
unsafe impl Sync for Kernel {}

/// The modules of one open device; dropping this unloads them.
pub struct Modules {
    driver: &'static Driver,
    context: Arc<Context>,
    loaded: Vec<CUmodule>,
}

// SAFETY: modules are handles that the driver accepts on any thread.
unsafe impl Send for Modules {}
// SAFETY: as for `Send`.
unsafe impl Sync for Modules {}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.loaded.is_empty() {
            return;
        }
        // Nobody is left to report failures to; a failure does not keep the other modules loaded.
        let _entered = self.context.enter();
        for &module in &self.loaded {
            // SAFETY: `load` loaded the module and only this unloads it. The device is closing, so none of its
            // kernels runs.
            unsafe { (self.driver.table.cuModuleUnload)(module) };
        }
    }
}

/// Loads every module that the architecture can run, and of the multicast modules those for `multicast`.
/// `shared_bytes` is the most shared memory of a block on the device.
///
/// # Errors
/// [`Status::CALL_FAILED`] for an image that does not decompress; the driver's failure. Both name the module or
/// kernel.
pub fn load(
    driver: &'static Driver,
    context: &Arc<Context>,
    architecture: u32,
    shared_bytes: u32,
    multicast: MulticastSupportCode,
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
            // SAFETY: the module was loaded above, in the current context.
            let function =
                unsafe { modules::function(driver, raw, entry.name.as_bytes(), shared_bytes) }?;
            let beside = entry.dependent_launch && driver.version >= GRAPHS_HOLD_DEPENDENT_LAUNCHES;
            by_name.push((entry.name, Kernel { function, beside }));
        }
    }
    Ok((modules, Kernels::new(by_name)?))
}

/// Returns whether to load a module. The hardware and the emulated multicast modules have the same kernels,
/// except that only the hardware has those for fp8.
fn is_wanted(module: &Module, multicast: MulticastSupportCode) -> bool {
    let support = match module.multicast {
        Multicast::None => return true,
        Multicast::Hardware => MulticastSupportCode::HARDWARE,
        Multicast::Emulated => MulticastSupportCode::EMULATED,
    };
    multicast == support
}

/// Loads the image chosen for the architecture, or the PTX if the driver rejects the cubin. Context current.
fn load_module(
    driver: &Driver,
    module: &Module,
    image: Result<AlignedBytes, CorruptImage>,
) -> CallResult<CUmodule> {
    let load = |image: Result<AlignedBytes, CorruptImage>| {
        let image = image.map_err(corrupt)?;
        // SAFETY: the caller made the context current. The code is this crate's own, and decompressed PTX ends
        // with a zero byte.
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

/// Returns the failure for an image that does not decompress.
fn corrupt(cause: CorruptImage) -> Failure {
    let message = format!("{cause}; build or install the program again");
    Failure::new(Status::CALL_FAILED, "decompress", message)
}

/// Returns the code from which an architecture loads a module, as text; `None` if another module has its kernels.
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
        assert_eq!(wanted(MulticastSupportCode::NONE), [""; 0]);
        let hardware = ["multicast", "multicast_f8"];
        assert_eq!(wanted(MulticastSupportCode::HARDWARE), hardware);
        let emulated = ["multicast_emulated", "multicast_emulated_sm_80"];
        assert_eq!(wanted(MulticastSupportCode::EMULATED), emulated);
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
