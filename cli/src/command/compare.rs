//! `symmem compare`: reads reports and prints tables. It starts no rank and opens no device.

use super::common::{Force, RESULTS};
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;
use symmem_bench::report::compare::{self, Comparison, Run};

/// The arguments of `symmem compare`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Reports that `symmem` or `symmem bench` wrote with --json; ratios compare the others with the first
    #[arg(required = true, num_args = 2.., value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Write the comparison as one self-contained HTML page; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    html: Option<Target>,
    #[command(flatten)]
    force: Force,
}

/// Prints the reports side by side.
pub fn compare(options: &Options) -> Result<ExitCode> {
    let html = options.force.checked(options.html.clone())?;
    let runs = options.reports.iter().map(|file| {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| {
            CommandError::Said(format!(
                "{name} cannot be read ({error}); name a report that `--json` wrote"
            ))
        })?;
        Ok(Run::parse(&name, &text)?)
    });
    let comparison = Comparison::new(runs.collect::<Result<_>>()?)?;
    let mut written = Written::default();
    if let Some(file) = &html {
        let page = compare::html(&comparison)
            .map_err(|error| CommandError::Said(format!("drawing the page: {error}")))?;
        written.write_to(file, &page)?;
    }
    output::text(compare::terminal(&comparison))?;
    written.tell()?;
    Ok(ExitCode::SUCCESS)
}
