//! `symmem info`: lists backends, devices, links and libraries, and why a backend cannot start. Opens no device.

mod backend;
mod brief;
mod memory;
mod network;

use super::common::{Backend as BackendOption, Force, RANKS, RESULTS};
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use crate::output;
use backend::Backend;
use network::Network;
use serde_json::{Value, json};
use std::process::ExitCode;
use symmem::backends::{Probe, Selection};

/// The arguments of `symmem info`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Backend: host, cuda, hip or path:FILE [default: SYMMEM_BACKEND, else all]
    #[arg(long, value_name = "BACKEND", help_heading = RANKS)]
    backend: Option<String>,
    /// Print every device, link, library file and kernel
    #[arg(long)]
    details: bool,
    /// Write the information as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    json: Option<Target>,
    #[command(flatten)]
    force: Force,
}

/// Prints every backend or the named one, and writes the same as JSON if asked.
pub fn info(options: &Options) -> Result<ExitCode> {
    let target = options.force.checked(options.json.clone())?;
    let backend = BackendOption {
        backend: options.backend.clone(),
    };
    let selection = backend.selection()?;
    let probes = BackendOption::probe(&selection)?;
    let works = |probe: &&Probe| matches!(probe.devices, Ok(1..)) && probe.source.is_some();
    let chosen = probes.iter().find(works).map(|probe| &*probe.name);
    let headline = format!(
        "symmem {}: `{selection}` selects {}",
        env!("CARGO_PKG_VERSION"),
        choice(&selection, &probes, chosen)
    );
    let backends: Vec<(&Probe, Backend)> = (probes.iter())
        .map(|probe| (probe, Backend::look(probe)))
        .collect();
    let network = Network::look(chosen);
    let text = match options.details {
        true => {
            let all = backends.iter();
            let all = all.map(|(probe, backend)| format!("\n{probe}\n{}", backend.text()));
            let network = network.details();
            format!("{headline}\n{}\n{network}\n", all.collect::<String>())
        }
        false => brief::text(&headline, &backends, &network.fact()),
    };
    let mut written = Written::default();
    if let Some(file) = &target {
        let backends = backends.iter().map(|(probe, backend)| backend.json(probe));
        let backends: Vec<Value> = backends.collect();
        let all = json!({
            "schema": "symmem-info/1",
            "backends": backends,
            "between_nodes": network.json(),
        });
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

/// Returns the selected backend, and for `auto` the reason.
fn choice(selection: &Selection, probes: &[Probe], chosen: Option<&str>) -> String {
    let Some(chosen) = chosen else {
        return "no backend; the reasons:".into();
    };
    let before = probes.iter().map(|probe| &*probe.name);
    let before: Vec<&str> = before.take_while(|name| *name != chosen).collect();
    match (selection, before.is_empty()) {
        (Selection::Auto, true) => format!("{chosen}, the first backend, because it can start"),
        (Selection::Auto, false) => {
            format!("{chosen}, because {} cannot start", before.join(" and "))
        }
        _ => chosen.into(),
    }
}
