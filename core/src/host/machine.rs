//! The host backend's one device: its identity and memory.

use crate::backend::abi::*;
use crate::backend::{CallResult, Failure, write_text};
use std::fs;

/// Returns the number of processors that this process may use; at least 1.
pub(crate) fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// Describes the machine. Fields that the kernel does not report are zero.
pub(crate) fn describe() -> DeviceDescription {
    let mut description = DeviceDescription {
        ordinal: 0,
        compute_units: processors(),
        architecture: 0,
        partition: 0,
        memory_bytes: memory().map_or(0, |memory| memory.total),
        uuid: boot_identity(),
        name: [0; 64],
        bus: [0; 16],
    };
    write_text(&mut description.name, &processor_name());
    description
}

/// Returns free and total memory from `/proc/meminfo`. Free memory is what can be had without swapping.
pub(crate) fn memory() -> CallResult<MemoryInformation> {
    const FILE: &str = "/proc/meminfo";
    let text = fs::read_to_string(FILE).map_err(|error| {
        Failure::of_call(
            Status::CALL_FAILED,
            format!("read {FILE}"),
            error.raw_os_error().unwrap_or(0),
            format!("{error}; mount /proc to use the host backend"),
        )
    })?;
    let bytes = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        let kibibytes = line.split_whitespace().next()?.parse::<u64>().ok()?;
        Some(kibibytes * 1024)
    };
    match (bytes("MemAvailable:"), bytes("MemTotal:")) {
        (Some(free), Some(total)) => Ok(MemoryInformation { free, total }),
        _ => Err(Failure::new(
            Status::CALL_FAILED,
            format!("read {FILE}"),
            "the file has no MemAvailable or no MemTotal; the host backend needs Linux 3.14 or newer",
        )),
    }
}

fn processor_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, name)| name.trim())
        })
        // On aarch64, /proc/cpuinfo has no model name.
        .map_or_else(
            || format!("{} processor", std::env::consts::ARCH),
            str::to_owned,
        )
}

/// Returns an identity of this boot: all ranks on it share the device, in whatever container they run.
fn boot_identity() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16).map(|value| value as u8))
        .collect();
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::read_text;

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn the_machine_has_a_name_an_identity_processors_and_memory() {
        let description = describe();
        assert!(!read_text(&description.name).is_empty());
        assert_ne!(description.uuid, [0; 16]);
        assert_eq!(description.uuid, describe().uuid);
        assert!(description.compute_units >= 1);
        let memory = memory().unwrap();
        assert!(memory.free > 0 && memory.free <= memory.total);
        assert_eq!(description.memory_bytes, memory.total);
    }
}
