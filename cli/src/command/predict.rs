//! `symmem bench collectives --predict`: times by a formula. It starts no rank and opens no device.

use super::common::MEASUREMENT;
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use symmem::cost::Preset;
use symmem_bench::collectives;
use symmem_bench::predict::{self, MOST_NODES};
use symmem_bench::report::{Report, prediction};

/// The arguments of a prediction.
#[derive(Debug, Default, Args)]
pub struct PredictArguments {
    /// Predict times and bytes on so many nodes by a formula, and measure nothing: 2 to 4096, several with commas.
    /// Needs no GPU; --ranks is then the number of ranks of each node [default: the machine's]
    #[arg(
        long,
        value_name = "NODES",
        value_delimiter = ',',
        value_parser = nodes,
        conflicts_with_all = ["baseline", "algorithm", "concurrent", "rounds", "between", "plain", "backend", "html", "type"],
        help_heading = MEASUREMENT
    )]
    predict: Vec<u32>,
    /// With --predict: fit the constants to the report FILE, which `symmem bench collectives --json` wrote
    #[arg(long, value_name = "FILE", requires = "predict", help_heading = MEASUREMENT)]
    fit: Option<PathBuf>,
    /// With --predict: the machine, h200 or tcp [default: h200]
    #[arg(long, value_name = "NAME", value_parser = machine, requires = "predict", help_heading = MEASUREMENT)]
    machine: Option<Preset>,
}

impl PredictArguments {
    /// Whether a prediction was asked for.
    pub fn is_asked(&self) -> bool {
        !self.predict.is_empty()
    }
}

/// Prints a prediction, and writes it to `json`.
pub fn predict(
    asked: PredictArguments,
    ranks_per_node: Option<u32>,
    which: collectives::Options,
    json: Option<&Target>,
) -> Result<ExitCode> {
    let fit = asked.fit.map(|file| read(&file)).transpose()?;
    let options = predict::Options {
        nodes: asked.predict,
        machine: asked.machine.unwrap_or(Preset::ALL[0]),
        ranks_per_node,
        which,
        fit,
    };
    // Nothing is measured: what fails is the request.
    let prediction =
        predict::run(&options).map_err(|error| CommandError::Said(error.to_string()))?;
    let mut written = Written::default();
    if let Some(target) = json {
        let text = serde_json::to_string_pretty(&prediction)
            .map_err(|error| CommandError::Said(format!("writing the prediction: {error}")))?;
        written.write_to(target, &text)?;
    }
    output::text(prediction::terminal(&prediction))?;
    written.tell()?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<(String, Report)> {
    let name = file.display().to_string();
    let advice = "name a report of `symmem bench collectives --json`";
    let text = std::fs::read_to_string(file).map_err(|error| {
        CommandError::Said(format!("{name} cannot be read ({error}); {advice}"))
    })?;
    let report = Report::from_json(&text)
        .map_err(|error| CommandError::Said(format!("{name} is no report ({error}); {advice}")))?;
    Ok((name, report))
}

fn nodes(text: &str) -> std::result::Result<u32, String> {
    let number = text
        .parse()
        .ok()
        .filter(|nodes| (2..=MOST_NODES).contains(nodes));
    number.ok_or_else(|| format!("not a number of nodes; write 2 to {MOST_NODES}"))
}

fn machine(text: &str) -> std::result::Result<Preset, String> {
    Preset::find(text).ok_or_else(|| {
        let names = Preset::ALL.map(|preset| preset.name);
        format!("not a machine; write {}", names.join(" or "))
    })
}
