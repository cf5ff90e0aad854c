//! `symmem info` without options: what was chosen, devices, links, versions, and what is missing or forbidden.

use super::backend::{Backend, describe};
use super::memory::Memory;
use symmem::backends::Probe;
use symmem_bench::report::links;

/// The most lines, and the most characters of a line.
const LINES: usize = 25;
const COLUMNS: usize = 100;
/// The most lines of one fact.
const FACT_LINES: usize = 4;

/// Returns the facts of all backends under a headline, and what is between nodes, which always has room.
pub fn text(headline: &str, backends: &[(&Probe, Backend)], network: &str) -> String {
    let mut lines = wrapped(headline, 0);
    lines.push(String::new());
    for (probe, backend) in backends {
        for (index, fact) in backend.facts(probe).iter().enumerate() {
            // Facts stand below the line of their backend.
            lines.extend(wrapped(fact, if index == 0 { 0 } else { 2 }));
        }
    }
    let network = wrapped(network, 0);
    let most = LINES - 1 - network.len();
    if lines.len() > most {
        lines.truncate(most - 1);
        lines.push("…".into());
    }
    lines.extend(network);
    lines.push("files, kernels, and every device and link: symmem info --details".into());
    lines.join("\n") + "\n"
}

/// Breaks a fact into lines; those after the first are indented further. Cuts a fact that is too long.
fn wrapped(fact: &str, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(indent);
    let mut is_empty = true;
    for word in fact.split_whitespace() {
        // A word that does not fit on a line of its own, such as a path, is broken.
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let space = usize::from(!is_empty);
            let left = COLUMNS.saturating_sub(line.chars().count() + space);
            if rest.len() <= left {
                if !is_empty {
                    line.push(' ');
                }
                line.extend(rest.drain(..));
            } else if is_empty {
                line.extend(rest.drain(..left));
            }
            is_empty = false;
            if !rest.is_empty() {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent + 2)));
                is_empty = true;
            }
        }
    }
    lines.push(line);
    if lines.len() > FACT_LINES {
        lines.truncate(FACT_LINES);
        if let Some(last) = lines.last_mut() {
            let kept: String = last.chars().take(COLUMNS - 2).collect();
            *last = format!("{} …", kept.trim_end());
        }
    }
    lines
}

impl Backend {
    /// Returns the facts of a backend: first its name and devices, or why it cannot start.
    fn facts(&self, probe: &Probe) -> Vec<String> {
        let name = &probe.name;
        let first = match &probe.devices {
            Err(failure) => return vec![format!("{name}: cannot start: {failure}")],
            Ok(0) => return vec![format!("{name}: cannot start: no device")],
            Ok(_) => format!("{name}: {}", self.devices_counted().join("; ")),
        };
        let mut facts = vec![first];
        facts.extend(self.links().map(|links| format!("links: {links}")));
        let versions: Vec<String> = (self.lines.iter())
            .filter_map(|(key, value)| {
                let what = product(key.strip_suffix("_version")?);
                Some(format!("{what} {value}"))
            })
            .collect();
        facts.extend(self.memory.as_ref().map(Memory::fact));
        if !versions.is_empty() {
            facts.push(format!("versions: {}", versions.join(", ")));
        }
        for (key, value) in &self.lines {
            if let Some(reason) = value.strip_prefix("unavailable: ")
                && !key.starts_with("device_")
            {
                facts.push(format!("missing: {key}: {reason}"));
            } else if let Some(reason) = value.strip_prefix("no: ")
                && let Some(what) = key.strip_suffix("_permitted")
            {
                facts.push(format!("forbidden: {}: {reason}", product(what)));
            } else if let Some(what) = key.strip_suffix("_advice") {
                facts.push(format!("advice for {}: {value}", product(what)));
            } else if key.starts_with("mask_") {
                facts.push(format!("mask: {value}"));
            } else if key == "multicast" {
                facts.push(format!("multicast: {value}"));
            }
        }
        for what in ["multicast", "kernels", "vmm"] {
            facts.extend(self.of_devices(what));
        }
        facts
    }

    /// Returns the devices, with equal neighbors as one.
    fn devices_counted(&self) -> Vec<String> {
        let texts: Vec<String> = (self.devices.iter())
            .map(|device| match device {
                Ok(device) => describe(device, ""),
                Err(error) => error.clone(),
            })
            .collect();
        let runs = texts.chunk_by(|a, b| a == b);
        runs.map(|run| format!("{} × {}", run.len(), run[0]))
            .collect()
    }

    fn links(&self) -> Option<String> {
        links::text(self.devices.len(), |from, to| self.link(from, to))
    }

    /// Returns what the lines `device_N_WHAT` say, once if it is the same for all devices.
    fn of_devices(&self, what: &str) -> Vec<String> {
        let values: Vec<(usize, &str)> = (0..self.devices.len())
            .filter_map(|device| {
                let key = format!("device_{device}_{what}");
                let (_, value) = self.lines.iter().find(|(name, _)| *name == key)?;
                Some((device, value.as_str()))
            })
            .collect();
        let runs: Vec<_> = values.chunk_by(|a, b| a.1 == b.1).collect();
        let is_same = runs.len() == 1 && values.len() == self.devices.len();
        let of_run = |run: &&[(usize, &str)]| match is_same {
            true => format!("{what}: {}", run[0].1),
            false => {
                let (first, last) = (run[0].0, run[run.len() - 1].0);
                let which = match first == last {
                    true => format!("device {first}"),
                    false => format!("devices {first} to {last}"),
                };
                format!("{what}, {which}: {}", run[0].1)
            }
        };
        runs.iter().map(of_run).collect()
    }
}

/// Returns how a library is written.
fn product(name: &str) -> &str {
    match name {
        "nccl" => "NCCL",
        "rccl" => "RCCL",
        "cublaslt" => "cuBLASLt",
        "hipblaslt" => "hipBLASLt",
        "hiprtc" => "hipRTC",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_fact_is_wrapped_and_cut_and_a_long_word_is_broken() {
        let lines = wrapped(&"word ".repeat(200), 2);
        assert_eq!(lines.len(), FACT_LINES);
        assert!(
            lines.iter().all(|line| line.chars().count() <= COLUMNS),
            "{lines:?}"
        );
        assert!(lines[0].starts_with("  word") && lines[1].starts_with("    word"));
        assert!(lines[3].ends_with('…'), "{lines:?}");
        let path = wrapped(&format!("file {} end", "/long".repeat(40)), 0);
        assert_eq!(path.len(), 4, "{path:?}");
        assert!(
            path.iter().all(|line| line.chars().count() <= COLUMNS),
            "{path:?}"
        );
        assert_eq!(
            path.concat().replace(' ', ""),
            format!("file{}end", "/long".repeat(40))
        );
    }
}
