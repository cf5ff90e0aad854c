//! `symmem info`: lists backends, devices, links and libraries, and why a backend cannot start. Opens no device.

use super::common::{Backend as BackendOption, RANKS, RESULTS};
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use crate::output;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use symmem::BackendSource;
use symmem::backend::abi::DeviceDescription;
use symmem::backend::read_text;
use symmem::backends::Probe;
use symmem::host::HostBackend;

/// The arguments of `symmem info`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Backend: host, cuda, hip or path:FILE [default: SYMMEM_BACKEND, else all]
    #[arg(long, value_name = "BACKEND", help_heading = RANKS)]
    backend: Option<String>,
    /// Write the information as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    json: Option<Target>,
}

/// Prints every backend or the named one, and writes the same as JSON if asked.
pub fn info(options: &Options) -> Result<ExitCode> {
    options.json.as_ref().map(Target::check).transpose()?;
    let backend = BackendOption {
        backend: options.backend.clone(),
    };
    let selection = backend.selection()?;
    let probes = BackendOption::probe(&selection)?;
    let works = |probe: &&Probe| matches!(probe.devices, Ok(1..)) && probe.source.is_some();
    let chosen = probes.iter().find(works).map(|probe| &*probe.name);
    let mut text = format!(
        "symmem {}: `{selection}` selects {}\n",
        env!("CARGO_PKG_VERSION"),
        chosen.unwrap_or("no backend; the reasons:")
    );
    let mut backends = Vec::new();
    for probe in &probes {
        let backend = Backend::look(probe);
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{probe}\n{}", backend.text());
        backends.push(backend.json(probe));
    }
    let mut written = Written::default();
    if let Some(file) = &options.json {
        let all = json!({ "schema": "symmem-info/1", "backends": backends });
        let all = serde_json::to_string_pretty(&all)
            .map_err(|error| CommandError::Said(format!("info: {error}")))?;
        written.write_to(file, &(all + "\n"))?;
    }
    output::text(&text)?;
    written.tell()?;
    // The command fails if no listed backend can start.
    Ok(match chosen {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// A backend's devices and libraries.
struct Backend {
    devices: Vec<std::result::Result<DeviceDescription, String>>,
    lines: Vec<(String, String)>,
}

impl Backend {
    fn look(probe: &Probe) -> Self {
        let count = probe.devices.as_ref().map_or(0, |count| *count);
        let Some(source) = &probe.source else {
            return Self {
                devices: Vec::new(),
                lines: Vec::new(),
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
        }
    }

    /// Returns the link from one device to another, if the backend reports it.
    fn link(&self, from: usize, to: usize) -> Option<&str> {
        let name = format!("link_{from}_{to}");
        let line = self.lines.iter().find(|(key, _)| *key == name);
        line.map(|(_, value)| value.as_str())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for (ordinal, device) in self.devices.iter().enumerate() {
            let _ = match device {
                Ok(device) => writeln!(text, "  {}", describe(device)),
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
        for (name, value) in &self.lines {
            if !name.starts_with("link_") {
                let _ = writeln!(text, "  {name}: {value}");
            }
        }
        text
    }

    fn json(&self, probe: &Probe) -> Value {
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
        })
    }
}

fn describe(device: &DeviceDescription) -> String {
    let mut text = format!("device {}: {}", device.ordinal, read_text(&device.name));
    if device.architecture != 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, ", architecture {}", device.architecture);
    }
    let gib = device.memory_bytes as f64 / f64::from(1 << 30);
    let _ = write!(
        text,
        ", {} compute units, {gib:.1} GiB",
        device.compute_units
    );
    let bus = read_text(&device.bus);
    if !bus.is_empty() {
        let _ = write!(text, ", bus {bus}");
    }
    let _ = write!(text, ", UUID {}", uuid(&device.uuid));
    if device.partition != 0 {
        text += ", MIG partition: not supported";
    }
    text
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
        };
        let text = backend.text();
        assert!(
            text.contains("NVLink") && text.contains("libx.so.1: /x"),
            "{text}"
        );
        assert!(!text.contains("link_0_1"), "{text}");
    }
}
