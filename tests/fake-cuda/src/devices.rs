//! The devices: how many, what they look like, who can reach whom.

use std::ffi::{c_char, c_int};
use std::sync::LazyLock;

use crate::call::{api, put};
use crate::driver::{initialise, initialised};
use crate::error::{Code, Result};

/// The switches of the environment, read once.
pub(crate) struct Configuration {
    pub stub: bool,
    devices: usize,
    pub memory_bytes: u64,
    mig: bool,
    unreachable: Unreachable,
    pub driver_version: i32,
    /// Compute capability, 90 for 9.0.
    pub architecture: u32,
    multicast: bool,
    pub eager_loading: bool,
}

/// Which pairs of devices cannot address each other.
enum Unreachable {
    Nobody,
    Everybody,
    Pairs(Vec<(usize, usize)>),
}

/// The configuration.
pub(crate) fn configuration() -> &'static Configuration {
    static CONFIGURATION: LazyLock<Configuration> = LazyLock::new(|| {
        let text = |name: &str| std::env::var(name).ok();
        let number = |name: &str, otherwise: u64| {
            text(name)
                .and_then(|value| value.parse().ok())
                .unwrap_or(otherwise)
        };
        let unreachable = match text("FAKE_CUDA_NO_PEER").as_deref() {
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
            stub: number("FAKE_CUDA_STUB", 0) != 0,
            devices: number("FAKE_CUDA_DEVICES", 2) as usize,
            memory_bytes: number("FAKE_CUDA_MEMORY_BYTES", 1 << 30),
            mig: number("FAKE_CUDA_MIG", 0) != 0,
            unreachable,
            driver_version: number("FAKE_CUDA_DRIVER_VERSION", 12080) as i32,
            architecture: number("FAKE_CUDA_ARCHITECTURE", 90) as u32,
            multicast: number("FAKE_CUDA_MULTICAST_HARDWARE", 0) != 0,
            eager_loading: text("CUDA_MODULE_LOADING").as_deref() == Some("EAGER"),
        }
    });
    &CONFIGURATION
}

/// The physical device behind each visible ordinal.
fn visible() -> &'static [usize] {
    static VISIBLE: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let all = configuration().devices;
        match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(list) => select(&list, all),
            Err(_) => (0..all).collect(),
        }
    });
    &VISIBLE
}

/// What `CUDA_VISIBLE_DEVICES` leaves: it ends at the first entry that names no device, and an
/// entry given twice leaves nothing.
fn select(list: &str, all: usize) -> Vec<usize> {
    let mut chosen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let device = match entry.parse::<usize>() {
            Ok(ordinal) => (ordinal < all).then_some(ordinal),
            Err(_) => {
                let mut matching = (0..all).filter(|&device| {
                    entry.len() > 4
                        && uuid_text(device).starts_with(&entry.to_lowercase()[4..])
                        && (entry.starts_with("GPU-") || entry.starts_with("MIG-"))
                });
                // A prefix that fits several devices names none.
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

/// What identifies a physical device in every process.
fn uuid(physical: usize) -> [u8; 16] {
    let mut uuid = *b"\xfa\xce\x00\x00symmem-fake\x00";
    uuid[2] = physical as u8;
    uuid[15] = if configuration().mig { 0x16 } else { 0 };
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

/// The physical device behind an ordinal that is known to be good.
pub(crate) fn physical(ordinal: usize) -> usize {
    visible()[ordinal]
}

/// The ordinal of a physical device, if it is visible here.
pub(crate) fn ordinal_of(physical: usize) -> Option<usize> {
    visible().iter().position(|&device| device == physical)
}

/// An ordinal, checked.
pub(crate) fn device(ordinal: c_int) -> Result<usize> {
    initialised()?;
    usize::try_from(ordinal)
        .ok()
        .filter(|&o| o < visible().len())
        .ok_or(Code::INVALID_DEVICE)
}

/// Whether `one` can address the memory of `other` (ordinals). A device reaches itself.
pub(crate) fn reaches(one: usize, other: usize) -> bool {
    let (one, other) = (physical(one), physical(other));
    one == other || reaches_physical(one, other)
}

fn reaches_physical(one: usize, other: usize) -> bool {
    !configuration().mig
        && match &configuration().unreachable {
            Unreachable::Nobody => true,
            Unreachable::Everybody => false,
            Unreachable::Pairs(pairs) => {
                !pairs.contains(&(one, other)) && !pairs.contains(&(other, one))
            }
        }
}

/// Most bytes of shared memory a block can opt in to (compute capability 9.0: 227 KiB).
pub(crate) fn shared_memory_limit() -> u32 {
    match configuration().architecture {
        90.. => 227 << 10,
        80 | 87 => 163 << 10,
        _ => 99 << 10,
    }
}

/// A device attribute; the numbers are `CUdevice_attribute`.
fn attribute(number: u32, ordinal: usize) -> Option<c_int> {
    let configuration = configuration();
    let hopper = configuration.architecture >= 90;
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
        16 => {
            if configuration.mig {
                16
            } else {
                132
            }
        }
        17 | 18 | 20 | 35 | 84..=86 | 88 | 89 | 100 | 101 => 0,
        33 => 0x10 + physical(ordinal) as c_int,
        34 | 50 => 0,
        36 => 3_201_000,
        37 => 6144,
        38 => 60 << 20,
        39 => 2048,
        40 => 3,
        75 => (configuration.architecture / 10) as c_int,
        76 => (configuration.architecture % 10) as c_int,
        81 => 228 << 10,
        87 => 2,
        91 => 1,
        // Stream memory operations in their first numbering (92..94) and the present one (122, 123).
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
        132 => c_int::from(configuration.multicast),
        _ => return None,
    })
}

fn write_text(text: &str, buffer: *mut c_char, length: c_int) -> Result {
    let length = usize::try_from(length)
        .ok()
        .filter(|&l| l > 0)
        .ok_or(Code::INVALID_VALUE)?;
    if buffer.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = text.len().min(length - 1);
    // SAFETY: the driver's caller promises `length` writable bytes, and `bytes < length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, bytes);
        buffer.add(bytes).write(0);
    }
    Ok(())
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
        initialise();
        Ok(())
    }
    fn [cuDriverGetVersion](version: Option<&mut c_int>) {
        put(version, configuration().driver_version)
    }
    fn [cuDeviceGet](out: Option<&mut c_int>, ordinal: c_int) {
        device(ordinal)?;
        put(out, ordinal)
    }
    fn [cuDeviceGetCount](count: Option<&mut c_int>) {
        initialised()?;
        put(count, visible().len() as c_int)
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
            // Performance rank: 0 is the best. Then access, native atomics, arrays.
            1 => 0,
            2..=4 => reaches,
            _ => return Err(Code::INVALID_VALUE),
        })
    }
}
api! { unsafe;
    fn [cuDeviceGetName](name: *mut c_char, length: c_int, ordinal: c_int) {
        device(ordinal)?;
        let text = if configuration().mig { "Fake NVIDIA H200 MIG 1g.18gb" } else { "Fake NVIDIA H200" };
        write_text(text, name, length)
    }
    fn [cuDeviceGetPCIBusId](text: *mut c_char, length: c_int, ordinal: c_int) {
        let physical = physical(device(ordinal)?);
        write_text(&format!("0000:{:02X}:00.0", 0x10 + physical), text, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_chosen_by_ordinal_or_uuid() {
        assert_eq!(select("1,0", 4), [1, 0]);
        assert_eq!(
            select("2,9,1", 4),
            [2],
            "what follows a bad entry is ignored"
        );
        assert_eq!(
            select("1,1", 4),
            [0usize; 0],
            "a device twice is none at all"
        );
        assert_eq!(select("", 4), [0usize; 0]);
        assert_eq!(select("-1", 4), [0usize; 0]);
        assert_eq!(select(&format!("GPU-{}", uuid_text(3)), 4), [3]);
        assert_eq!(select("GPU-face02", 4), [2], "a prefix is enough");
        assert_eq!(
            select("GPU-face", 4),
            [0usize; 0],
            "an ambiguous one is not"
        );
    }
}
