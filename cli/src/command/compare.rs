//! `symmem compare`: reads files and prints tables; it starts no rank and opens no device.

use super::common::Common;
use super::error::{CommandError, Result};
use super::files::{Written, check_writable};
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;
use symmem_bench::report::compare::{self, Comparison, Run};

/// Lays the reports in `files` side by side.
pub fn compare(common: &Common, files: &[PathBuf]) -> Result<ExitCode> {
    if common.json.is_some() {
        return Err(CommandError::Said(
            "compare writes tables and, with --html FILE, a page; its figures are those of the files it reads"
                .into(),
        ));
    }
    common.html.as_deref().map(check_writable).transpose()?;
    let runs = files.iter().map(|file| {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| CommandError::System {
            what: format!("reading {name}"),
            error,
        })?;
        Ok(Run::parse(&name, &text)?)
    });
    let comparison = Comparison::new(runs.collect::<Result<_>>()?)?;
    let mut written = Written::default();
    if let Some(file) = &common.html {
        let page = compare::html(&comparison)
            .map_err(|error| CommandError::Said(format!("drawing the page: {error}")))?;
        written.write(file, &page)?;
    }
    output::text(compare::terminal(&comparison))?;
    written.tell()?;
    Ok(ExitCode::SUCCESS)
}
