//! The backend's own kernels, chosen for the device and loaded when it is opened.

use crate::context::Context;
use crate::driver::constants::FUNCTION_MAX_THREADS_PER_BLOCK;
use crate::driver::constants::result::NO_BINARY_FOR_GPU;
use crate::driver::{Driver, call};
use crate::modules;
use cudarc::driver::sys::{CUfunction, CUmodule};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use symmem_core::backend::abi::{CollectiveKernel, ElementType, Status};
use symmem_core::backend::{CallResult, Failure};
use symmem_kernels_ptx::{Entry, Image, Module};

/// The driver from which on a graph can hold an edge between kernels that overlap (`CUgraphEdgeData`):
/// before it, a dependent launch has no place in a capture.
const GRAPHS_HOLD_DEPENDENT_LAUNCHES: u32 = 12_030;

/// Types of elements: one kernel each in a family that reduces. Numbered from 1.
const ELEMENTS: usize = 14;

/// A kernel of ours.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// The driver's handle.
    pub function: CUfunction,
    /// Whether it may start beside its predecessor: it waits for it before it touches memory, and the
    /// driver lets such a launch be captured.
    pub beside: bool,
}

/// A kernel whose blocks wait for blocks of other devices, so that all must be resident at once.
pub struct WaitingKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Most resident blocks of one, two, … 32 warps; [`UNKNOWN`] until it was asked for.
    resident: [AtomicU32; 32],
}

const UNKNOWN: u32 = u32::MAX;

impl WaitingKernel {
    fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            resident: [const { AtomicU32::new(UNKNOWN) }; 32],
        }
    }

    /// Most blocks of `threads` threads that are resident at once if nothing else runs, where the
    /// driver was asked already; 0 where a block cannot have so many threads.
    pub fn known_resident_blocks(&self, threads: u32) -> Option<u32> {
        let Some(known) = self.place(threads) else {
            return Some(0);
        };
        Some(known.load(Ordering::Relaxed)).filter(|&blocks| blocks != UNKNOWN)
    }

    /// As [`WaitingKernel::known_resident_blocks`]; asks the driver, for a device of so many compute
    /// units. Context current.
    pub fn ask_resident_blocks(
        &self,
        driver: &Driver,
        compute_units: u32,
        threads: u32,
    ) -> CallResult<u32> {
        let Some(known) = self.place(threads) else {
            return Ok(0);
        };
        let (function, mut each, mut most) = (self.kernel.function, 0, 0);
        // Whole warps, as they are resident: so that one answer holds for all of its entry.
        let threads = threads.next_multiple_of(32) as c_int;
        // SAFETY: the places are writable and the function live.
        unsafe {
            call!(
                driver,
                cuFuncGetAttribute(&raw mut most, FUNCTION_MAX_THREADS_PER_BLOCK, function)
            )?;
            // For more threads than the kernel was compiled for there may be a failure, or none.
            if threads <= most {
                call!(
                    driver,
                    cuOccupancyMaxActiveBlocksPerMultiprocessor(
                        &raw mut each,
                        function,
                        threads,
                        0
                    )
                )?;
            }
        }
        let blocks = u32::try_from(each).unwrap_or(0) * compute_units;
        known.store(blocks, Ordering::Relaxed);
        Ok(blocks)
    }

    fn place(&self, threads: u32) -> Option<&AtomicU32> {
        self.resident.get(threads.checked_sub(1)? as usize / 32)
    }
}

/// The kernels of one open device; unloaded on drop.
pub struct Kernels {
    driver: &'static Driver,
    context: Arc<Context>,
    modules: Vec<CUmodule>,
    by_name: Vec<(&'static Entry, CUfunction)>,
    /// Put or get by 16-byte loads and stores.
    pub copy_vector: Kernel,
    /// Put or get by TileScale's published method.
    pub copy_unrolled: Kernel,
    /// Put or get by bulk copies, where the architecture has them.
    pub copy_bulk: Option<Kernel>,
    /// Gives a signal.
    pub signal: Kernel,
    /// Waits for a signal.
    pub wait: Kernel,
    /// Gives a signal, then waits for one.
    pub step: Kernel,
    /// Updates a word.
    pub word_update: Kernel,
    /// Waits for words.
    pub word_wait: Kernel,
    /// A barrier of all ranks.
    pub barrier: Kernel,
    /// Copies between two barriers.
    pub collective_move: WaitingKernel,
    /// Swaps between two barriers.
    pub collective_swap: WaitingKernel,
    /// Bytes in packets.
    pub collective_packets: WaitingKernel,
    /// Sends and receives.
    pub collective_exchange: WaitingKernel,
    reduce: [WaitingKernel; ELEMENTS],
    reduce_packets: [WaitingKernel; ELEMENTS],
    /// For some types only.
    reduce_push: [Option<WaitingKernel>; ELEMENTS],
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
                by_name.push((entry, function));
            }
        }
        let find = |name: &str| find(driver, &by_name, name);
        let waiting = |name: &str| find(name).map(WaitingKernel::new);
        Ok(Self {
            driver,
            context: context.clone(),
            copy_vector: find("symmem_copy_vector")?,
            copy_unrolled: find("symmem_copy_unrolled")?,
            copy_bulk: find("symmem_copy_bulk").ok(),
            signal: find("symmem_signal")?,
            wait: find("symmem_wait")?,
            step: find("symmem_step")?,
            word_update: find("symmem_word_update")?,
            word_wait: find("symmem_word_wait")?,
            barrier: find("symmem_barrier")?,
            collective_move: waiting("symmem_move")?,
            collective_swap: waiting("symmem_swap")?,
            collective_packets: waiting("symmem_move_packets")?,
            collective_exchange: waiting("symmem_exchange")?,
            reduce: each_element("symmem_reduce", waiting)?,
            reduce_packets: each_element("symmem_reduce_packets", waiting)?,
            reduce_push: each_element("symmem_reduce_push", |name| Ok(waiting(name).ok()))?,
            modules: std::mem::take(&mut loading.modules),
            by_name,
        })
    }

    /// A kernel by its name in `device/`.
    pub fn by_name(&self, name: &[u8]) -> CallResult<CUfunction> {
        let name = String::from_utf8_lossy(name);
        find(self.driver, &self.by_name, &name).map(|kernel| kernel.function)
    }

    /// The kernel of a family; `element` matters only to families that reduce. `None` for a family or
    /// an element from a newer version.
    pub fn collective(
        &self,
        family: CollectiveKernel,
        element: ElementType,
    ) -> Option<&WaitingKernel> {
        let index = (element.0 as usize).wrapping_sub(1);
        match family {
            CollectiveKernel::MOVE => Some(&self.collective_move),
            CollectiveKernel::SWAP => Some(&self.collective_swap),
            CollectiveKernel::PACKETS => Some(&self.collective_packets),
            CollectiveKernel::EXCHANGE => Some(&self.collective_exchange),
            CollectiveKernel::REDUCE => self.reduce.get(index),
            CollectiveKernel::REDUCE_PACKETS => self.reduce_packets.get(index),
            CollectiveKernel::REDUCE_PUSH => self.reduce_push.get(index)?.as_ref(),
            _ => None,
        }
    }
}

/// A family's kernel for each type of elements, in the order of their numbers.
fn each_element<T>(
    family: &str,
    find: impl Fn(&str) -> CallResult<T>,
) -> CallResult<[T; ELEMENTS]> {
    let mut kernels = Vec::with_capacity(ELEMENTS);
    for element in element_names() {
        kernels.push(find(&format!("{family}_{element}"))?);
    }
    // As many as there are names.
    Ok(kernels.try_into().unwrap_or_else(|_| unreachable!()))
}

/// Types of elements as kernels are named, in the order of their numbers.
fn element_names() -> impl Iterator<Item = String> {
    (1..=ELEMENTS as u32).map(|number| ElementType(number).name().to_ascii_lowercase())
}

fn find(
    driver: &Driver,
    by_name: &[(&'static Entry, CUfunction)],
    name: &str,
) -> CallResult<Kernel> {
    by_name
        .iter()
        .find(|(entry, _)| entry.name == name)
        .map(|&(entry, function)| Kernel {
            function,
            beside: entry.dependent_launch && driver.version >= GRAPHS_HOLD_DEPENDENT_LAUNCHES,
        })
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
    use symmem_core::backend::abi::*;

    #[test]
    fn kernels_take_the_structs_that_they_are_launched_with() {
        let mut kernels = vec![
            (
                "symmem_copy_vector".to_owned(),
                size_of::<TransferArguments>(),
            ),
            (
                "symmem_copy_unrolled".to_owned(),
                size_of::<TransferArguments>(),
            ),
            (
                "symmem_copy_bulk".to_owned(),
                size_of::<TransferArguments>(),
            ),
            ("symmem_signal".to_owned(), size_of::<SignalTarget>()),
            ("symmem_wait".to_owned(), size_of::<SignalWait>()),
            ("symmem_step".to_owned(), size_of::<StepArguments>()),
            ("symmem_word_update".to_owned(), size_of::<WordOperation>()),
            ("symmem_word_wait".to_owned(), size_of::<WordWait>()),
            ("symmem_barrier".to_owned(), size_of::<Barrier>()),
            (
                "symmem_latency_packet".to_owned(),
                size_of::<LatencyArguments>(),
            ),
            (
                "symmem_latency_signal".to_owned(),
                size_of::<LatencyArguments>(),
            ),
            ("symmem_move".to_owned(), size_of::<MoveArguments>()),
            ("symmem_swap".to_owned(), size_of::<MoveArguments>()),
            (
                "symmem_move_packets".to_owned(),
                size_of::<PacketArguments>(),
            ),
            ("symmem_exchange".to_owned(), size_of::<ExchangeArguments>()),
        ];
        for element in element_names() {
            kernels.push((
                format!("symmem_reduce_{element}"),
                size_of::<ReduceArguments>(),
            ));
            let packets = format!("symmem_reduce_packets_{element}");
            kernels.push((packets, size_of::<ReducePacketArguments>()));
        }
        for element in ["f16", "bf16", "f32"] {
            let push = format!("symmem_reduce_push_{element}");
            kernels.push((push, size_of::<ReducePushArguments>()));
        }
        for (name, bytes) in kernels {
            let mut entries = symmem_kernels_ptx::modules().iter().flat_map(|m| m.entries);
            let entry = entries.find(|entry| entry.name == name).expect(&name);
            assert_eq!(entry.argument_bytes as usize, bytes, "{name}");
        }
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

    #[test]
    fn elements_are_named_in_the_order_of_their_numbers_and_all_are_known() {
        let names: Vec<_> = element_names().collect();
        assert_eq!(names[ElementType::BF16.0 as usize - 1], "bf16");
        assert_eq!(names[ElementType::F8_E5M2.0 as usize - 1], "f8_e5m2");
        assert!(names.iter().all(|name| name != "unknown"));
        assert_eq!(ElementType(ELEMENTS as u32 + 1).name(), "unknown");
    }
}
