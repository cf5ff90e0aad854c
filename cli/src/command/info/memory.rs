//! The memory that the start of a communicator takes, for the worlds that a host can have.

use serde_json::{Value, json};
use std::fmt::Write;
use symmem::{BackendSource, MemoryPart, StartMemory};

/// The numbers of ranks that are printed.
const WORLDS: [usize; 4] = [1, 2, 4, 8];

/// The memory of a start for each of [`WORLDS`], or why the backend cannot tell.
pub struct Memory(Result<[StartMemory; WORLDS.len()], String>);

impl Memory {
    /// Asks a backend, without opening a device.
    pub fn look(source: &BackendSource) -> Self {
        let all: Result<Vec<_>, _> = (WORLDS.iter())
            .map(|&world| StartMemory::of(source, world))
            .collect();
        let all = all.map_err(|failure| failure.to_string());
        Self(all.and_then(|all| {
            all.try_into()
                .map_err(|_| "a number of worlds that was not asked for".into())
        }))
    }

    /// Returns the totals in one line.
    pub fn fact(&self) -> String {
        let text = match &self.0 {
            Ok(all) => {
                let totals = all.iter().zip(WORLDS).map(|(memory, world)| {
                    let megabytes = memory.device_bytes() as f64 / 1e6;
                    format!("{megabytes:.1} for world size {world}")
                });
                totals.collect::<Vec<_>>().join(", ")
            }
            Err(reason) => format!("unknown: {reason}"),
        };
        format!("device memory of a start, in MB a rank: {text}")
    }

    /// Returns a table of all parts.
    pub fn text(&self) -> String {
        let Ok(all) = &self.0 else {
            return format!("  {}\n", self.fact());
        };
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::TableStyle::new());
        let worlds = WORLDS.map(|world| format!("world size {world}"));
        table.set_header(std::iter::once("MB".to_owned()).chain(worlds));
        let mut row = |name: &str, bytes: &dyn Fn(&StartMemory) -> u64| {
            let cells = all.iter().map(|memory| megabytes(bytes(memory)));
            table.add_row(std::iter::once(name.to_owned()).chain(cells));
        };
        row("device, total", &StartMemory::device_bytes);
        // The largest world has every part that a smaller one has.
        for MemoryPart {
            name, on_device, ..
        } in all[WORLDS.len() - 1].parts()
        {
            let place = if on_device { "device" } else { "pinned host" };
            row(&format!("{place}: {name}"), &|memory| {
                bytes_of(memory, name)
            });
        }
        let mut text = String::from("  memory of a start, for each rank:\n");
        for line in table.lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {}", line.trim_end());
        }
        text
    }

    /// Returns totals and parts of each world; null if the backend cannot tell.
    pub fn json(&self) -> Value {
        let Ok(all) = &self.0 else {
            return Value::Null;
        };
        let worlds = all.iter().zip(WORLDS).map(|(memory, world)| {
            let parts = memory.parts();
            let parts = parts.iter().map(|part| {
                json!({ "name": part.name, "on_device": part.on_device, "bytes": part.bytes })
            });
            json!({
                "world_size": world,
                "device_bytes": memory.device_bytes(),
                "parts": parts.collect::<Vec<_>>(),
            })
        });
        worlds.collect()
    }
}

fn bytes_of(memory: &StartMemory, name: &str) -> u64 {
    let parts = memory.parts();
    let named = parts.iter().find(|part| part.name == name);
    named.map_or(0, |part| part.bytes)
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0 => "–".into(),
        1..10_000 => "<0.01".into(),
        _ => format!("{:.2}", bytes as f64 / 1e6),
    }
}
