//! The devices: how many, what the shared rules ask of them, who can reach whom.

use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, OnceLock};

use crate::driver::initialised;
use crate::error::{Code, Result};
use crate::launch::Grid;

/// The switches of the environment, read once.
pub struct Configuration {
    /// How many physical devices there are.
    pub devices: usize,
    /// Memory of each.
    pub memory_bytes: u64,
    /// Addresses behind each piece of device memory that belong to nothing.
    pub gap: u64,
    unreachable: Unreachable,
}

/// Which pairs of devices cannot address each other.
enum Unreachable {
    Nobody,
    Everybody,
    Pairs(Vec<(usize, usize)>),
}

/// A number of the environment's.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(otherwise)
}

/// The configuration.
pub fn configuration() -> &'static Configuration {
    static CONFIGURATION: LazyLock<Configuration> = LazyLock::new(|| {
        let unreachable = match std::env::var("FAKE_DEVICE_NO_PEER").ok().as_deref() {
            None | Some("" | "0") => Unreachable::Nobody,
            Some(pairs) if pairs.contains('-') => {
                let pair = |pair: &str| {
                    let (one, other) = pair.split_once('-')?;
                    Some((one.parse().ok()?, other.parse().ok()?))
                };
                Unreachable::Pairs(pairs.split(',').filter_map(pair).collect())
            }
            Some(_) => Unreachable::Everybody,
        };
        Configuration {
            devices: number("FAKE_DEVICE_COUNT", 2) as usize,
            memory_bytes: number("FAKE_DEVICE_MEMORY_BYTES", 1 << 30),
            gap: number("FAKE_DEVICE_GAP_BYTES", 4096),
            unreachable,
        }
    });
    &CONFIGURATION
}

/// What a vendor's devices are like, where that decides what a shared rule says.
#[derive(Debug)]
pub struct Machine {
    /// The physical device behind each visible ordinal.
    pub visible: Vec<usize>,
    /// No device reaches another, whatever else is said.
    pub isolated: bool,
    /// The number that a function's attributes name the architecture with.
    pub architecture: c_int,
    /// Shared memory.
    pub shared: SharedMemory,
    /// Whether a module's functions are on the device once it is loaded.
    pub eager_loading: bool,
    /// How the list of the buffer form of a launch's arguments ends.
    pub end_of_arguments: usize,
    /// What the arguments of each of symmem's kernels begin with, ahead of the kernel's own.
    pub preamble: Option<Preamble>,
    /// Whether access can be set from the start of a reservation only.
    pub access_from_start: bool,
    /// Whether mapping memory and setting access report success and do nothing: a fault of a runtime's.
    pub maps_nothing: bool,
    /// Where a device sees what others write to a word that it polls.
    pub polling: Polling,
    /// The type of memory without addresses that no device caches, if there is one.
    pub uncached_type: Option<u32>,
    /// The switch between the devices, if there is one that knows multicast.
    pub switch: Option<Switch>,
}

/// A switch that knows multicast.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// Bytes that sizes and offsets of objects and bindings are multiples of.
    pub minimum: u64,
    /// And had better be.
    pub recommended: u64,
    /// How many objects can have memory bound at once.
    pub slots: usize,
}

/// Where a device sees what others write to a word that it polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Anywhere.
    Anywhere,
    /// In its own memory, or in memory that nobody caches.
    OwnOrUncached,
    /// In memory that nobody caches.
    Uncached,
}

/// What a launch says in front of the kernel's arguments, on a machine whose kernels do not learn
/// the geometry otherwise.
#[derive(Debug)]
pub struct Preamble {
    /// How many bytes.
    pub bytes: usize,
    /// What is wrong with them, if anything.
    pub check: fn(&[u8], &Grid) -> Option<String>,
}

/// Bytes of shared memory of a block or a multiprocessor.
#[derive(Debug)]
pub struct SharedMemory {
    /// What a block may use without opting in to more.
    pub by_default: u32,
    /// What it can opt in to.
    pub limit: u32,
    /// What a multiprocessor has.
    pub of_multiprocessor: u32,
    /// What of that each block pays itself.
    pub of_each_block: u32,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// The vendor's library is initialised: from now on calls are answered.
pub fn initialise(machine: impl FnOnce() -> Machine) {
    MACHINE.get_or_init(machine);
}

/// The machine, once the library is initialised.
pub fn machine() -> Result<&'static Machine> {
    MACHINE.get().ok_or(Code::NOT_INITIALIZED)
}

fn visible() -> &'static [usize] {
    MACHINE.get().map_or(&[], |machine| &machine.visible)
}

/// How many devices are visible.
pub fn count() -> usize {
    visible().len()
}

/// The physical device behind an ordinal that is known to be good.
pub fn physical(ordinal: usize) -> usize {
    visible()[ordinal]
}

/// The ordinal of a physical device, if it is visible here.
pub(crate) fn ordinal_of(physical: usize) -> Option<usize> {
    visible().iter().position(|&device| device == physical)
}

/// An ordinal, checked.
pub fn device(ordinal: c_int) -> Result<usize> {
    initialised()?;
    usize::try_from(ordinal)
        .ok()
        .filter(|&ordinal| ordinal < count())
        .ok_or(Code::INVALID_DEVICE)
}

/// Whether `one` can address the memory of `other` (ordinals). A device reaches itself.
pub fn reaches(one: usize, other: usize) -> bool {
    let (one, other) = (physical(one), physical(other));
    one == other || reaches_physical(one, other)
}

fn reaches_physical(one: usize, other: usize) -> bool {
    !MACHINE.get().is_some_and(|machine| machine.isolated)
        && match &configuration().unreachable {
            Unreachable::Nobody => true,
            Unreachable::Everybody => false,
            Unreachable::Pairs(pairs) => {
                !pairs.contains(&(one, other)) && !pairs.contains(&(other, one))
            }
        }
}

/// What a list of visible devices leaves: it ends at the first entry that names no device, and an
/// entry given twice leaves nothing. `named` says which devices a text that is no ordinal fits; one
/// that fits several names none.
pub fn select(list: &str, all: usize, named: impl Fn(&str, usize) -> bool) -> Vec<usize> {
    let mut chosen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let device = match entry.parse::<usize>() {
            Ok(ordinal) => (ordinal < all).then_some(ordinal),
            Err(_) => {
                let mut matching = (0..all).filter(|&device| named(entry, device));
                matching.next().filter(|_| matching.next().is_none())
            }
        };
        match device {
            Some(device) if chosen.contains(&device) => return Vec::new(),
            Some(device) => chosen.push(device),
            None => break,
        }
    }
    chosen
}

/// Write a text with its zero to a caller's buffer, as much as there is room for.
///
/// # Safety
/// `buffer` is null or writable for `length` bytes.
pub unsafe fn write_text(text: &str, buffer: *mut c_char, length: c_int) -> Result {
    let length = usize::try_from(length)
        .ok()
        .filter(|&l| l > 0)
        .ok_or(Code::INVALID_VALUE)?;
    if buffer.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = text.len().min(length - 1);
    // SAFETY: the caller promises `length` writable bytes, and `bytes < length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, bytes);
        buffer.add(bytes).write(0);
    }
    Ok(())
}
