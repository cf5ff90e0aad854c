//! What a backend tells of its devices, links and libraries.

use super::memory::Memory;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use symmem::BackendSource;
use symmem::backend::abi::DeviceDescription;
use symmem::backend::read_text;
use symmem::backends::Probe;
use symmem::host::HostBackend;
use symmem_bench::report::links;

/// A backend's devices and libraries.
pub struct Backend {
    pub devices: Vec<std::result::Result<DeviceDescription, String>>,
    pub lines: Vec<(String, String)>,
    /// `None` if the backend has no table of functions.
    pub memory: Option<Memory>,
}

impl Backend {
    pub fn look(probe: &Probe) -> Self {
        let count = probe.devices.as_ref().map_or(0, |count| *count);
        let Some(source) = &probe.source else {
            return Self {
                devices: Vec::new(),
                lines: Vec::new(),
                memory: None,
            };
        };
        let describe = |ordinal| match source {
            BackendSource::Host => HostBackend::describe_device(ordinal),
            BackendSource::Tables(tables) => tables.describe_device(ordinal),
        };
        let libraries = match source {
            BackendSource::Host => String::new(),
            BackendSource::Tables(tables) => tables.describe_libraries().unwrap_or_default(),
        };
        Self {
            devices: (0..count)
                .map(|ordinal| describe(ordinal).map_err(|failure| failure.to_string()))
                .collect(),
            lines: libraries
                .lines()
                .filter_map(|line| line.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            memory: Some(Memory::look(source)),
        }
    }

    /// Returns the link from one device to another, if the backend reports it.
    pub fn link(&self, from: usize, to: usize) -> Option<&str> {
        let name = links::key(from, to);
        let line = self.lines.iter().find(|(key, _)| *key == name);
        line.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for (ordinal, device) in self.devices.iter().enumerate() {
            let _ = match device {
                Ok(device) => writeln!(text, "  {}", describe_own(device)),
                Err(error) => writeln!(text, "  device {ordinal}: {error}"),
            };
        }
        let count = self.devices.len();
        if count > 1 && self.link(0, 1).is_some() {
            let _ = writeln!(text, "  links from device (row) to device (column):");
            let mut table = comfy_table::Table::new();
            table.load_style(comfy_table::TableStyle::new());
            let columns = (0..count).map(|to| to.to_string());
            table.set_header(std::iter::once(String::new()).chain(columns));
            for from in 0..count {
                let cell = |to| match self.link(from, to) {
                    _ if from == to => "self".to_owned(),
                    Some(link) => link.to_owned(),
                    None => "?".to_owned(),
                };
                table.add_row(std::iter::once(from.to_string()).chain((0..count).map(cell)));
            }
            for line in table.lines() {
                let _ = writeln!(text, "  {}", line.trim_end());
            }
        }
        if let Some(memory) = &self.memory {
            text += &memory.text();
        }
        for (name, value) in &self.lines {
            if !name.starts_with("link_") {
                let _ = writeln!(text, "  {name}: {value}");
            }
        }
        text
    }

    pub fn json(&self, probe: &Probe) -> Value {
        let devices: Vec<Value> = (self.devices.iter())
            .map(|device| match device {
                Ok(device) => json!({
                    "ordinal": device.ordinal,
                    "name": read_text(&device.name),
                    "uuid": uuid(&device.uuid),
                    "bus": read_text(&device.bus),
                    "memory_bytes": device.memory_bytes,
                    "compute_units": device.compute_units,
                    "architecture": device.architecture,
                    "partition": device.partition != 0,
                }),
                Err(error) => json!({ "error": error }),
            })
            .collect();
        let lines: Map<String, Value> = (self.lines.iter())
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        json!({
            "name": probe.name,
            "probe": probe.to_string(),
            "starts": matches!(probe.devices, Ok(1..)),
            "devices": devices,
            "libraries": lines,
            "start_memory": self.memory.as_ref().map(Memory::json),
        })
    }
}

/// Describes a device by what it shares with others of its model, then by `own`, which only this one has.
pub fn describe(device: &DeviceDescription, own: &str) -> String {
    let mut text = read_text(&device.name);
    if device.architecture != 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, ", architecture {}", device.architecture);
    }
    let gib = device.memory_bytes as f64 / f64::from(1 << 30);
    let units = device.compute_units;
    let _ = write!(text, ", {units} compute units, {gib:.1} GiB{own}");
    if device.partition != 0 {
        text += ", MIG partition: not supported";
    }
    text
}

/// Describes a device with its number, bus and UUID.
fn describe_own(device: &DeviceDescription) -> String {
    let bus = match read_text(&device.bus) {
        bus if bus.is_empty() => bus,
        bus => format!(", bus {bus}"),
    };
    let own = format!("{bus}, UUID {}", uuid(&device.uuid));
    format!("device {}: {}", device.ordinal, describe(device, &own))
}

/// Formats a UUID in the groups that nvidia-smi prints.
fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_the_vendors_tools_print_it() {
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn links_stand_in_a_matrix_and_not_among_the_libraries() {
        let device = HostBackend::describe_device(0).unwrap();
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let backend = Backend {
            devices: vec![Ok(device), Ok(device)],
            lines: vec![
                line("link_0_1", "NVLink"),
                line("link_1_0", "no"),
                line("libx.so.1", "/x"),
            ],
            memory: None,
        };
        let text = backend.text();
        assert!(
            text.contains("NVLink") && text.contains("libx.so.1: /x"),
            "{text}"
        );
        assert!(!text.contains("link_0_1"), "{text}");
    }
}
