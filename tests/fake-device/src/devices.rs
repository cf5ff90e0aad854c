//! The devices: how many there are, the properties that the shared rules depend on, and which pairs are peers.

use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, OnceLock};

use crate::driver::initialized;
use crate::error::{Code, Result};
use crate::launch::Grid;

/// The switches from the environment, read once.
pub struct Configuration {
    /// How many physical devices there are.
    pub devices: usize,
    /// Memory of each device, in bytes.
    pub memory_bytes: u64,
    /// Unused addresses behind each piece of device memory, in bytes.
    pub gap: u64,
    unreachable: Unreachable,
}

/// Which pairs of devices cannot address each other.
enum Unreachable {
    Nobody,
    Everybody,
    Pairs(Vec<(usize, usize)>),
}

/// Reads a number from an environment variable.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(otherwise)
}

/// Returns the configuration.
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

/// The properties of a vendor's devices that the shared rules depend on.
#[derive(Debug)]
pub struct Machine {
    /// The physical device behind each visible ordinal.
    pub visible: Vec<usize>,
    /// Whether no device reaches another, whatever `FAKE_DEVICE_NO_PEER` says.
    pub isolated: bool,
    /// The architecture's number in function attributes.
    pub architecture: c_int,
    /// Multiprocessors or compute units of a device.
    pub units: c_int,
    /// Sizes of shared memory.
    pub shared: SharedMemory,
    /// Whether loading a module also loads its functions onto the device.
    pub eager_loading: bool,
    /// The end marker of the `extra` list that passes a launch's arguments as a buffer.
    pub end_of_arguments: usize,
    /// What precedes the arguments of each of symmem's kernels.
    pub preamble: Option<Preamble>,
    /// Whether access can only be set from the start of a reservation.
    pub access_from_start: bool,
    /// Whether mapping memory and setting access report success and do nothing, a known runtime fault.
    pub maps_nothing: bool,
    /// Which memory a device can poll for words that others write.
    pub polling: Polling,
    /// The allocation type of VMM memory that no device caches, if there is one.
    pub uncached_type: Option<u32>,
    /// The switch between the devices, if it supports multicast.
    pub switch: Option<Switch>,
}

/// A switch that supports multicast.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// Granularity in bytes of sizes and offsets of objects and bindings.
    pub minimum: u64,
    /// Recommended granularity in bytes.
    pub recommended: u64,
    /// How many objects can have memory bound at once.
    pub slots: usize,
}

/// Which memory a device can poll for words that others write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Any memory.
    Anywhere,
    /// Its own memory, or uncached memory.
    OwnOrUncached,
    /// Uncached memory only.
    Uncached,
}

/// What precedes a kernel's arguments on a machine whose kernels learn their geometry from the arguments.
#[derive(Debug)]
pub struct Preamble {
    /// Size in bytes.
    pub bytes: usize,
    /// Returns what is wrong with these bytes, if anything.
    pub check: fn(&[u8], &Grid) -> Option<String>,
}

/// Bytes of shared memory per block or multiprocessor.
#[derive(Debug)]
pub struct SharedMemory {
    /// What a block may use without opting in.
    pub by_default: u32,
    /// What a block can opt in to.
    pub limit: u32,
    /// What a multiprocessor has.
    pub of_multiprocessor: u32,
    /// What each block reserves of the multiprocessor's shared memory for itself.
    pub of_each_block: u32,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Initializes the vendor's library: from now on calls succeed.
pub fn initialize(machine: impl FnOnce() -> Machine) {
    MACHINE.get_or_init(machine);
}

/// Returns the machine once the library is initialized.
pub fn machine() -> Result<&'static Machine> {
    MACHINE.get().ok_or(Code::NOT_INITIALIZED)
}

fn visible() -> &'static [usize] {
    MACHINE.get().map_or(&[], |machine| &machine.visible)
}

/// Returns the number of visible devices.
pub fn count() -> usize {
    visible().len()
}

/// Returns the physical device behind a valid ordinal.
pub fn physical(ordinal: usize) -> usize {
    visible()[ordinal]
}

/// Returns the ordinal of a physical device, if it is visible here.
pub(crate) fn ordinal_of(physical: usize) -> Option<usize> {
    visible().iter().position(|&device| device == physical)
}

/// Checks an ordinal.
pub fn device(ordinal: c_int) -> Result<usize> {
    initialized()?;
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

/// Returns the devices that a list of visible devices selects. The list ends at the first entry that names no device;
/// an entry given twice selects nothing. `named` says whether a text that is no ordinal matches a device; a text that
/// matches several selects none.
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

/// Writes a zero-terminated text to a caller's buffer, truncated to the buffer's length.
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
