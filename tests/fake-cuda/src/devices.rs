//! The devices: visibility, attributes and names.

use std::ffi::{c_char, c_int};
use std::sync::LazyLock;

use fake_device::api;
use fake_device::call::put;
use fake_device::devices::{
    Machine, Polling, SharedMemory, Switch, configuration, count, device, initialize, number,
    physical, reaches, select, write_text,
};
use fake_device::error::{Code, Result};

/// The fake driver's own switches from the environment, read once.
struct Switches {
    stub: bool,
    mig: bool,
    short_gpcs: Option<usize>,
    driver_version: i32,
    /// Compute capability, 90 for 9.0.
    architecture: u32,
    switch: Option<Switch>,
}

fn switches() -> &'static Switches {
    static SWITCHES: LazyLock<Switches> = LazyLock::new(|| Switches {
        stub: number("FAKE_CUDA_STUB", 0) != 0,
        mig: number("FAKE_CUDA_MIG", 0) != 0,
        short_gpcs: usize::try_from(number("FAKE_CUDA_SHORT_GPCS", u64::MAX)).ok(),
        driver_version: number("FAKE_CUDA_DRIVER_VERSION", 12080) as i32,
        architecture: number("FAKE_CUDA_ARCHITECTURE", 90) as u32,
        switch: (number("FAKE_CUDA_MULTICAST_HARDWARE", 0) != 0).then(|| Switch {
            minimum: number("FAKE_CUDA_MULTICAST_MINIMUM", 2 << 20),
            recommended: number("FAKE_CUDA_MULTICAST_RECOMMENDED", 16 << 20),
            slots: number("FAKE_CUDA_MULTICAST_SLOTS", 128) as usize,
        }),
    });
    &SWITCHES
}

/// Whether this is the toolkit's stub library, which exports all functions and implements none.
pub(crate) fn is_stub() -> bool {
    switches().stub
}

/// Returns the version as `cuDriverGetVersion` reports it.
pub(crate) fn driver_version() -> i32 {
    switches().driver_version
}

/// Returns the compute capability, 90 for 9.0.
pub(crate) fn architecture() -> u32 {
    switches().architecture
}

fn machine() -> Machine {
    Machine {
        visible: visible(),
        isolated: switches().mig,
        architecture: architecture() as c_int,
        units: gpcs().sum(),
        shared: SharedMemory {
            by_default: 48 << 10,
            limit: shared_memory_limit(),
            of_multiprocessor: 228 << 10,
            of_each_block: 1 << 10,
        },
        eager_loading: std::env::var("CUDA_MODULE_LOADING").as_deref() == Ok("EAGER"),
        end_of_arguments: 0,
        preamble: None,
        access_from_start: false,
        maps_nothing: false,
        polling: Polling::Anywhere,
        uncached_type: None,
        switch: switches().switch,
    }
}

/// Returns the physical device behind each visible ordinal.
fn visible() -> Vec<usize> {
    let all = configuration().devices;
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => select(&list, all, is_named),
        Err(_) => (0..all).collect(),
    }
}

/// Whether an entry of `CUDA_VISIBLE_DEVICES` is the start of a device's UUID.
fn is_named(entry: &str, device: usize) -> bool {
    entry.len() > 4
        && uuid_text(device).starts_with(&entry.to_lowercase()[4..])
        && (entry.starts_with("GPU-") || entry.starts_with("MIG-"))
}

/// Returns the UUID of a physical device, the same in every process.
fn uuid(physical: usize) -> [u8; 16] {
    let mut uuid = *b"\xfa\xce\x00\x00symmem-fake\x00";
    uuid[2] = physical as u8;
    uuid[15] = if switches().mig { 0x16 } else { 0 };
    uuid
}

fn uuid_text(physical: usize) -> String {
    let mut text = String::new();
    for (index, byte) in uuid(physical).iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

/// Returns the most bytes of shared memory that a block can opt in to (compute capability 9.0: 227 KiB).
pub(crate) fn shared_memory_limit() -> u32 {
    match architecture() {
        90.. => 227 << 10,
        80 | 87 => 163 << 10,
        _ => 99 << 10,
    }
}

/// Returns the device of which one SM in each GPC takes no clusters, if there is one.
pub(crate) fn short_gpcs() -> Option<usize> {
    switches().short_gpcs
}

/// Returns the SMs of each GPC: an H200's, or those of a MIG slice.
pub(crate) fn gpcs() -> impl Iterator<Item = c_int> {
    let gpcs: &[c_int] = match switches().mig {
        true => &[16],
        false => &[18, 18, 16, 16, 16, 16, 16, 16],
    };
    gpcs.iter().copied()
}

/// Returns a device attribute. The numbers are those of `CUdevice_attribute`.
fn attribute(number: u32, ordinal: usize) -> Option<c_int> {
    let architecture = architecture();
    let hopper = architecture >= 90;
    Some(match number {
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 48 << 10,
        9 => 65536,
        10 => 32,
        11 => i32::MAX,
        12 | 82 => 65536,
        13 => 1_980_000,
        14 => 512,
        15 | 19 | 31 | 32 | 41 | 78..=80 | 83 | 90 => 1,
        16 => gpcs().sum(),
        17 | 18 | 20 | 35 | 84..=86 | 88 | 89 | 100 | 101 => 0,
        33 => 0x10 + physical(ordinal) as c_int,
        34 | 50 => 0,
        36 => 3_201_000,
        37 => 6144,
        38 => 60 << 20,
        39 => 2048,
        40 => 3,
        75 => (architecture / 10) as c_int,
        76 => (architecture % 10) as c_int,
        81 => 228 << 10,
        87 => 2,
        91 => 1,
        // Stream memory operations, in their first numbering (92..94) and the current one (122, 123).
        92..=96 | 122 | 123 => 1,
        97 => shared_memory_limit() as c_int,
        98 | 99 | 102 | 103 => 1,
        104 | 105 | 107 => 0,
        106 => 32,
        108 | 109 => 0,
        110 => 1,
        111 => 1024,
        112 | 113 | 115 | 116 | 121 | 124 | 125 => 1,
        114 | 117..=120 => 0,
        126 => 4,
        127 => c_int::from(hopper),
        128 | 129 => 0,
        130 | 133 => 0,
        131 | 134 => -1,
        132 => c_int::from(switches().switch.is_some()),
        _ => return None,
    })
}

fn write_uuid(out: Option<&mut [u8; 16]>, ordinal: c_int) -> Result {
    put(out, uuid(physical(device(ordinal)?)))
}

api! {
    fn [cuInit](flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if visible().is_empty() {
            return Err(Code::NO_DEVICE);
        }
        initialize(machine);
        Ok(())
    }
    fn [cuDriverGetVersion](version: Option<&mut c_int>) {
        put(version, driver_version())
    }
    fn [cuDeviceGet](out: Option<&mut c_int>, ordinal: c_int) {
        device(ordinal)?;
        put(out, ordinal)
    }
    fn [cuDeviceGetCount](out: Option<&mut c_int>) {
        fake_device::devices::machine()?;
        put(out, count() as c_int)
    }
    fn [cuDeviceGetUuid](out: Option<&mut [u8; 16]>, ordinal: c_int) { write_uuid(out, ordinal) }
    fn [cuDeviceGetUuid_v2](out: Option<&mut [u8; 16]>, ordinal: c_int) { write_uuid(out, ordinal) }
    fn [cuDeviceGetAttribute](out: Option<&mut c_int>, number: u32, ordinal: c_int) {
        let value = attribute(number, device(ordinal)?).ok_or(Code::INVALID_VALUE)?;
        put(out, value)
    }
    fn [cuDeviceTotalMem_v2](bytes: Option<&mut usize>, ordinal: c_int) {
        device(ordinal)?;
        put(bytes, configuration().memory_bytes as usize)
    }
    fn [cuDeviceCanAccessPeer](out: Option<&mut c_int>, one: c_int, other: c_int) {
        let (one, other) = (device(one)?, device(other)?);
        put(out, c_int::from(one != other && reaches(one, other)))
    }
    fn [cuDeviceGetP2PAttribute](out: Option<&mut c_int>, number: u32, one: c_int, other: c_int) {
        let (one, other) = (device(one)?, device(other)?);
        if one == other {
            return Err(Code::INVALID_DEVICE);
        }
        let reaches = c_int::from(reaches(one, other));
        put(out, match number {
            // Performance rank, of which 0 is the best; then access, native atomics, arrays.
            1 => 0,
            2..=4 => reaches,
            _ => return Err(Code::INVALID_VALUE),
        })
    }
}
api! { unsafe;
    fn [cuDeviceGetName](name: *mut c_char, length: c_int, ordinal: c_int) {
        device(ordinal)?;
        let text = if switches().mig { "Fake NVIDIA H200 MIG 1g.18gb" } else { "Fake NVIDIA H200" };
        // SAFETY: the caller promises a buffer of that length.
        unsafe { write_text(text, name, length) }
    }
    fn [cuDeviceGetPCIBusId](text: *mut c_char, length: c_int, ordinal: c_int) {
        let physical = physical(device(ordinal)?);
        let name = format!("0000:{:02X}:00.0", 0x10 + physical);
        // SAFETY: the caller promises a buffer of that length.
        unsafe { write_text(&name, text, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &str, all: usize) -> Vec<usize> {
        select(list, all, is_named)
    }

    #[test]
    fn visible_devices_are_chosen_by_ordinal_or_uuid() {
        assert_eq!(chosen("1,0", 4), [1, 0]);
        assert_eq!(
            chosen("2,9,1", 4),
            [2],
            "entries after a bad one are ignored"
        );
        assert_eq!(
            chosen("1,1", 4),
            [0usize; 0],
            "a repeated device selects nothing"
        );
        assert_eq!(chosen("", 4), [0usize; 0]);
        assert_eq!(chosen("-1", 4), [0usize; 0]);
        assert_eq!(chosen(&format!("GPU-{}", uuid_text(3)), 4), [3]);
        assert_eq!(chosen("GPU-face02", 4), [2], "a prefix is enough");
        assert_eq!(
            chosen("GPU-face", 4),
            [0usize; 0],
            "an ambiguous prefix selects nothing"
        );
    }
}
