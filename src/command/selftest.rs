//! `symmem selftest`: the conformance suite on this machine.

use super::{CommandError, Common, Result, output};
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::process::ExitCode;
use symmem::conformance::{Outcome, Report, SelftestOptions, selftest};

/// Runs the suite, says what failed and what was skipped, and writes all of it.
pub fn run(common: &Common) -> Result<ExitCode> {
    if common.html.is_some() || common.quick {
        return Err(CommandError::Said(
            "selftest takes --backend, --ranks, --full and --json".into(),
        ));
    }
    if let Some(file) = &common.json {
        output::check_writable(file)?;
    }
    let options = SelftestOptions {
        backend: common.selection()?,
        ranks: common.ranks.into_iter().collect(),
        full: common.full,
        ..SelftestOptions::default()
    };
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(0)
    } else {
        ProgressBar::hidden()
    };
    let report = selftest(&options, |done, all, _| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    print!("{}", text(&report));
    if let Some(file) = &common.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| CommandError::Said(format!("report: {error}")))?;
        output::write(file, &(json + "\n"))?;
    }
    Ok(if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    for world in &report.worlds {
        for case in &world.cases {
            if let Outcome::Failed(reason) = &case.record.outcome {
                lines.push(format!(
                    "FAILED, {} ranks: {}: {reason}",
                    world.world, case.name
                ));
            }
        }
        if let Some(trouble) = &world.trouble {
            lines.push(format!("FAILED, {} ranks: {trouble}", world.world));
        }
    }
    let worlds: Vec<String> = (report.worlds.iter())
        .map(|world| world.world.to_string())
        .collect();
    lines.push(format!(
        "{} in worlds of {}, {} (seed {}): {}",
        report.backend,
        worlds.join(", "),
        if report.full { "all cases" } else { "a sample" },
        report.seed,
        report.totals
    ));
    lines.join("\n") + "\n"
}
