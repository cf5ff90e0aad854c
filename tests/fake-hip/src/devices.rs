//! The devices: their properties, and the device that each thread uses.

use std::ffi::{c_char, c_int};
use std::sync::LazyLock;

use fake_device::call::put;
use fake_device::devices::{
    Machine, Polling, Preamble, SharedMemory, configuration, count, device, initialize, number,
    physical, reaches, select, write_text,
};
use fake_device::error::{Code, Result};
use fake_device::launch::Grid;
use fake_device::{api, contexts};

use crate::release::{self, release};

/// Returns the architecture of the devices: `gfx942` unless `FAKE_HIP_ARCHITECTURE` says otherwise.
pub(crate) fn architecture() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        std::env::var("FAKE_HIP_ARCHITECTURE").unwrap_or_else(|_| "gfx942".into())
    });
    &NAME
}

/// A processor's figures, from AMD's documents on the MI200, MI300 and MI350 series.
struct Processor {
    name: &'static str,
    compute_capability: (c_int, c_int),
    units: c_int,
    /// Dies with compute units.
    dies: c_int,
    shared_memory: u32,
    /// The frequency of the constant counter that kernels read.
    clock_khz: c_int,
}

fn processor() -> Processor {
    let gfx942 = Processor {
        name: "Fake AMD Instinct MI300X",
        compute_capability: (9, 4),
        units: 304,
        dies: 8,
        shared_memory: 64 << 10,
        clock_khz: 100_000,
    };
    match architecture() {
        "gfx90a" => Processor {
            name: "Fake AMD Instinct MI250X",
            compute_capability: (9, 0),
            units: 110,
            dies: 1,
            clock_khz: 25_000,
            ..gfx942
        },
        "gfx950" => Processor {
            name: "Fake AMD Instinct MI355X",
            compute_capability: (9, 5),
            units: 256,
            shared_memory: 160 << 10,
            ..gfx942
        },
        _ => gfx942,
    }
}

/// What precedes the arguments of symmem's kernels. It tells them their geometry, since they have no hidden arguments.
struct Launch {
    blocks: u32,
    threads: u32,
    tick_nanoseconds: u32,
    reserved: u32,
}

impl Launch {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes
            .chunks_exact(4)
            .map(|word| word.try_into().map(u32::from_ne_bytes));
        let mut next = || words.next()?.ok();
        Some(Self {
            blocks: next()?,
            threads: next()?,
            tick_nanoseconds: next()?,
            reserved: next()?,
        })
    }

    /// Returns what is wrong with the geometry that a launch's arguments give.
    fn check(bytes: &[u8], grid: &Grid) -> Option<String> {
        let Some(said) = Self::read(bytes) else {
            return Some(format!("{} bytes contain no geometry", bytes.len()));
        };
        let tick = 1_000_000 / processor().clock_khz as u32;
        let (blocks, threads) = (grid.blocks[0], grid.threads[0]);
        let flat = grid.blocks[1..] == [1, 1] && grid.threads[1..] == [1, 1];
        if !flat || (said.blocks, said.threads) != (blocks, threads) {
            return Some(format!(
                "the arguments give {} blocks of {} threads, but the launch has {:?} of {:?}",
                said.blocks, said.threads, grid.blocks, grid.threads
            ));
        }
        if said.tick_nanoseconds != tick || said.reserved != 0 {
            let (said, reserved) = (said.tick_nanoseconds, said.reserved);
            return Some(format!(
                "a tick of {said} ns, not {tick}; reserved is {reserved}"
            ));
        }
        None
    }
}

/// Whether a variable enables a known fault of the runtime.
pub(crate) fn fault(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

fn machine() -> Machine {
    let shared = processor().shared_memory;
    Machine {
        visible: visible(),
        isolated: false,
        architecture: processor().compute_capability.0 * 10 + processor().compute_capability.1,
        units: processor().units,
        shared: SharedMemory {
            by_default: shared,
            limit: shared,
            of_multiprocessor: shared,
            of_each_block: 0,
        },
        // Loading a code object puts it on the device.
        eager_loading: true,
        end_of_arguments: 3,
        preamble: Some(Preamble {
            bytes: size_of::<Launch>(),
            check: Launch::check,
        }),
        access_from_start: true,
        switch: None,
        maps_nothing: fault("FAKE_HIP_MAPS_NOTHING"),
        // From LLVM's guide, memory models gfx90a and gfx942: on gfx942 and later, a peer's store invalidates the line
        // in the owner's cache.
        polling: match architecture() {
            "gfx90a" => Polling::Uncached,
            _ => Polling::OwnOrUncached,
        },
        uncached_type: (release() >= release::UNCACHED_TYPE).then_some(0x4000_0000),
    }
}

/// Returns the physical device behind each visible ordinal. The driver's variable selects first, then the runtime's
/// variable selects among the rest.
fn visible() -> Vec<usize> {
    let all: Vec<usize> = (0..configuration().devices).collect();
    let driver = chosen(&all, "ROCR_VISIBLE_DEVICES");
    let variable = ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"]
        .into_iter()
        .find(|name| std::env::var_os(name).is_some());
    variable.map_or(driver.clone(), |variable| chosen(&driver, variable))
}

fn chosen(among: &[usize], variable: &str) -> Vec<usize> {
    let Ok(list) = std::env::var(variable) else {
        return among.to_vec();
    };
    let named = |entry: &str, index: usize| {
        entry.strip_prefix("GPU-").is_some_and(|id| {
            !id.is_empty() && identifier(among[index]).starts_with(&id.to_lowercase())
        })
    };
    let chosen = select(&list, among.len(), named);
    chosen.into_iter().map(|index| among[index]).collect()
}

/// Returns the number of partitions that each GPU is divided into. Each partition is a device.
fn partitions() -> usize {
    (number("FAKE_HIP_PARTITIONS", 1) as usize).max(1)
}

/// Returns the identifier of a physical device in every process, 16 characters as the runtime writes it. The partitions
/// of a GPU share it.
fn identifier(physical: usize) -> String {
    format!("fa{:02x}ce5ca1ab1e00", physical / partitions())
}

/// Initializes the runtime at the first call, with device 0 for a thread that has chosen none.
pub(crate) fn ensure() -> Result {
    initialize(machine);
    if count() == 0 {
        return Err(Code::NO_DEVICE);
    }
    if !contexts::has_current() {
        contexts::set_current(contexts::implicit(0)?)?;
    }
    Ok(())
}

/// Returns a device attribute. The numbers are those of `hipDeviceAttribute_t`.
fn attribute(number: u32, ordinal: usize) -> Option<c_int> {
    let processor = processor();
    // Missing from the headers of 5.2; the last two also from those of 6.0.
    let since = match number {
        89 | 90 | 10017 => release::of(5, 3),
        91 | 10018 => release::of(6, 2),
        _ => 0,
    };
    if release() < since {
        return None;
    }
    Some(match number {
        // ECC, engines, host memory, concurrency, cooperation, atomics.
        0 | 3 | 4 | 8 | 10 | 15 => 1,
        2 => 8,
        5 => 2_100_000,
        6 | 9 | 12 | 13 | 16 | 17 | 18 | 62 | 65 | 66 | 70 => 0,
        19 => 4 << 20,
        23 => processor.compute_capability.0,
        61 => processor.compute_capability.1,
        25 => 32,
        26..=28 | 56 => 1024,
        29 => c_int::MAX,
        30 | 31 => 65536,
        57 => 2048,
        58 => c_int::MAX,
        59 => 8192,
        60 => 1_300_000,
        63 | 10015 => processor.units,
        67 => 0x10 + physical(ordinal) as c_int,
        68 | 69 => 0,
        71 => 65536,
        73 => 0,
        74..=76 | 10002 => processor.shared_memory as c_int,
        85 | 90 => 1,
        87 => 64,
        88 => 1,
        89 => c_int::from(release() >= release::VIRTUAL_MEMORY),
        // A file descriptor.
        91 => 1,
        10011 | 10013 | 10016 => 1,
        10017 => processor.clock_khz,
        10018 => processor.dies,
        _ => return None,
    })
}

/// `hipDeviceProp_t` of release 5.2: its length, and the offsets of name and architecture name.
const PROPERTIES: (usize, usize, usize) = (792, 0, 396);
/// The same of release 6.0.
const PROPERTIES_6: (usize, usize, usize) = (1472, 0, 1160);

/// # Safety
/// `out` is null or writable for the struct's length.
unsafe fn properties(out: *mut u8, ordinal: c_int, layout: (usize, usize, usize)) -> Result {
    device(ordinal)?;
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let (length, name, target) = layout;
    // SAFETY: the caller promises that the struct's `length` bytes are writable.
    let bytes = unsafe { std::slice::from_raw_parts_mut(out, length) };
    bytes.fill(0);
    let full = format!("{}:sramecc+:xnack-", architecture());
    for (at, text) in [(name, processor().name), (target, &full)] {
        bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    Ok(())
}

api! {
    fn [hipInit](flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        match ensure() {
            Err(Code::NO_DEVICE) if release() < release::INIT_SAYS_NO_DEVICE => Err(Code::INVALID_DEVICE),
            result => result,
        }
    }
    fn [hipDriverGetVersion, hipRuntimeGetVersion](version: Option<&mut c_int>) {
        put(version, release::number())
    }
    fn [hipGetDeviceCount](out: Option<&mut c_int>) {
        let out = out.ok_or(Code::INVALID_VALUE)?;
        *out = 0;
        ensure()?;
        *out = count() as c_int;
        Ok(())
    }
    fn [hipGetDevice](out: Option<&mut c_int>) { contexts::current_device(out) }
    fn [hipSetDevice](ordinal: c_int) { contexts::set_current(contexts::implicit(ordinal)?) }
    fn [hipDeviceSynchronize]() { contexts::synchronize() }
    fn [hipDeviceGetUuid](out: Option<&mut [u8; 16]>, ordinal: c_int) {
        let identifier = identifier(physical(device(ordinal)?));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(identifier.as_bytes());
        put(out, bytes)
    }
    fn [hipDeviceTotalMem](bytes: Option<&mut usize>, ordinal: c_int) {
        device(ordinal)?;
        put(bytes, configuration().memory_bytes as usize)
    }
    fn [hipDeviceGetAttribute](out: Option<&mut c_int>, number: u32, ordinal: c_int) {
        put(out, attribute(number, device(ordinal)?).ok_or(Code::INVALID_VALUE)?)
    }
    fn [hipDeviceGetStreamPriorityRange](least: Option<&mut c_int>, greatest: Option<&mut c_int>) {
        contexts::priorities(least, greatest)
    }
    fn [hipDeviceCanAccessPeer](out: Option<&mut c_int>, one: c_int, other: c_int) {
        let (one, other) = (device(one)?, device(other)?);
        put(out, c_int::from(one != other && reaches(one, other)))
    }
    fn [hipDeviceEnablePeerAccess](peer: c_int, flags: u32) {
        contexts::enable_peer(contexts::implicit(peer)?, flags)
    }
    fn [hipDeviceDisablePeerAccess](peer: c_int) { contexts::disable_peer(contexts::implicit(peer)?) }
    fn [hipExtGetLinkTypeAndHopCount](
        one: c_int, other: c_int, kind: Option<&mut u32>, hops: Option<&mut u32>,
    ) {
        let (one, other) = (device(one)?, device(other)?);
        if one == other {
            return Err(Code::INVALID_VALUE);
        }
        // HSA's numbers: 4 is xGMI, one hop in a mesh; 2 is PCIe.
        let (link, distance) = if reaches(one, other) { (4, 1) } else { (2, 2) };
        put(kind, link)?;
        put(hops, distance)
    }
}
api! { unsafe;
    fn [hipDeviceGetName](name: *mut c_char, length: c_int, ordinal: c_int) {
        device(ordinal)?;
        // SAFETY: the caller promises a buffer of that length.
        unsafe { write_text(processor().name, name, length) }
    }
    fn [hipDeviceGetPCIBusId](text: *mut c_char, length: c_int, ordinal: c_int) {
        let physical = physical(device(ordinal)?);
        let (gpu, partition) = (physical / partitions(), physical % partitions());
        let name = format!("0000:{:02x}:00.{partition}", 0x10 + gpu);
        // SAFETY: the caller promises a buffer of that length.
        unsafe { write_text(&name, text, length) }
    }
    fn [hipGetDeviceProperties](out: *mut u8, ordinal: c_int) {
        // SAFETY: the caller promises the struct of this function's layout.
        unsafe { properties(out, ordinal, PROPERTIES) }
    }
    fn [hipGetDevicePropertiesR0600](out: *mut u8, ordinal: c_int) {
        // SAFETY: the caller promises the struct of this function's layout.
        unsafe { properties(out, ordinal, PROPERTIES_6) }
    }
}
