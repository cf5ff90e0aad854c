//! The live test: runs its parts in turn, each in ranks of its own, until one fails.
//!
//! This is the only code of the command that asks for multicast, and only for these ranks.

use super::part::Part;
use crate::command::error::{CommandError, INTERRUPTED, Result};
use crate::command::files::Target;
use crate::command::selftest::with_bar;
use crate::command::start::{command_line, start_ranks};
use crate::command::task::{Kind, Task};
use crate::doctor::{BringUp, Steps, Trial};
use crate::output;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use symmem::backends::Selection;
use symmem_bench::report::Report;
use symmem_bench::{Effort, collectives};
use symmem_conformance::{SelftestOptions, Subject};

/// The log filter that shows each step of the setup.
const STEPS: &str = "symmem::memory::multicast=debug";
/// NCCL's default: use multicast if possible, silently fall back if not.
const NCCL: (&str, &str) = ("NCCL_NVLS_ENABLE", "2");

type Variables = Vec<(OsString, OsString)>;

/// The parameters that the ranks of all parts share.
struct Launcher<'a> {
    selection: &'a Selection,
    ranks: u32,
    variables: Variables,
}

/// What rank 0 found before the ranks ended.
struct PartResult<T> {
    what: Option<T>,
    /// Why the ranks failed, if they did.
    failure: Option<String>,
}

/// A directory for rank 0's findings, removed on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the parts and prints their results; blocks until the test has ended.
///
/// # Errors
/// Only lost output and Ctrl-C. Any other failure is the returned trial's `failure`.
pub fn run(
    selection: &Selection,
    effort: Effort,
    steps: &Steps,
    bench: collectives::Options,
) -> Result<Trial> {
    let ranks = steps.ranks;
    let launcher = Launcher {
        selection,
        ranks,
        variables: vec![
            ("SYMMEM_MULTICAST".into(), "1".into()),
            (
                "SYMMEM_MULTICAST_BYTES".into(),
                steps.bytes.to_string().into(),
            ),
        ],
    };
    let mut trial = Trial {
        ranks,
        ..Trial::default()
    };
    let failure = parts(&mut trial, &launcher, effort, steps.bring_ups, bench);
    // An error becomes the trial's trouble, so that the earlier findings are reported with it.
    trial.failure = match failure {
        Err(error @ (CommandError::Output(_) | CommandError::Interrupted)) => return Err(error),
        ended => ended.unwrap_or_else(|error| Some(error.to_string())),
    };
    match &trial.failure {
        None => output::text(format_args!(
            "\nMulticast works on this machine, with {ranks} ranks.\n"
        ))?,
        Some(failure) => {
            output::text(format_args!(
                "\nFAILED: {failure}\nFor causes and recovery, run: symmem doctor multicast\n"
            ))?;
        }
    }
    Ok(trial)
}

/// Runs the parts in turn. Returns the trouble of the first that fails.
fn parts(
    trial: &mut Trial,
    launcher: &Launcher<'_>,
    effort: Effort,
    bring_ups: u32,
    bench: collectives::Options,
) -> Result<Option<String>> {
    if launcher.ranks < 2 {
        return Ok(Some(
            "multicast needs at least two devices, one per rank".into(),
        ));
    }
    output::text(format_args!("\n1. One communicator, step by step\n"))?;
    let log = std::env::var_os("SYMMEM_LOG").unwrap_or_else(|| STEPS.into());
    let log = vec![("SYMMEM_LOG".into(), log)];
    let found = launcher.found(Part::BringUps(1), log)?;
    let failure = of_bring_ups(&found);
    trial.set_up = found.what.unwrap_or_default();
    if let Some(failure) = failure {
        return Ok(Some(format!("setup: {failure}")));
    }
    output::text(format_args!("\n2. Conformance\n"))?;
    let report = launcher.conformance(effort)?;
    output::text(format_args!("  {}\n", report.totals))?;
    let failure = of_conformance(&report);
    trial.conformance = Some(report);
    if let Some(failure) = failure {
        return Ok(Some(format!("conformance: {failure}")));
    }
    output::text(format_args!(
        "\n3. {bring_ups} communicators, one after the other\n"
    ))?;
    let found = launcher.found(Part::BringUps(bring_ups), Variables::new())?;
    let failure = of_bring_ups(&found);
    trial.bring_ups = found.what.unwrap_or_default();
    if let Some(failure) = failure {
        return Ok(Some(format!("setup and release: {failure}")));
    }
    output::text(format_args!("\n4. Measurement\n"))?;
    let mut nccl = Variables::new();
    // The value 0 was refused before the test.
    if std::env::var_os(NCCL.0).is_none_or(|value| value.is_empty()) {
        nccl.push((NCCL.0.into(), NCCL.1.into()));
    }
    let found = launcher.found(Part::Bench(bench), nccl)?;
    let failure = of_bench(&found);
    trial.bench = found.what;
    Ok(failure.map(|failure| format!("measuring: {failure}")))
}

fn of_bring_ups(found: &PartResult<Vec<BringUp>>) -> Option<String> {
    let all = found.what.iter().flatten();
    let failure = all.into_iter().find_map(BringUp::failure);
    failure.or_else(|| found.failure.clone())
}

fn of_bench(found: &PartResult<Report>) -> Option<String> {
    let wrong = found.what.as_ref().is_some_and(Report::is_wrong);
    let failure = wrong.then(|| "results were wrong; see the table".to_owned());
    failure.or_else(|| found.failure.clone())
}

fn of_conformance(report: &symmem_conformance::Report) -> Option<String> {
    for world in &report.worlds {
        match (&*world.about.multicast, &world.failure) {
            // The world did not start.
            ("", Some(failure)) => return Some(failure.clone()),
            ("HARDWARE", _) => {}
            (path, _) => {
                return Some(format!(
                    "all ranks agreed on multicast support {path} instead of HARDWARE"
                ));
            }
        }
        let failed = |case: &symmem_conformance::NamedRecord| match &case.record.outcome {
            symmem_conformance::Outcome::Passed => None,
            symmem_conformance::Outcome::Failed(reason) => Some(format!("{}: {reason}", case.name)),
            symmem_conformance::Outcome::Skipped(reason) => {
                Some(format!("{} was not run: {reason}", case.name))
            }
        };
        let failed = world.cases.iter().find_map(failed);
        if let Some(failure) = failed.or_else(|| world.failure.clone()) {
            return Some(failure);
        }
        if let Some(way) = world.ways_without_multicast().first() {
            return Some(format!("no case of {way} used multicast"));
        }
    }
    (report.totals.passed == 0).then(|| "no case was run".into())
}

impl Launcher<'_> {
    /// Runs a part with additional variables, and reads rank 0's findings.
    fn found<T: DeserializeOwned>(&self, part: Part, also: Variables) -> Result<PartResult<T>> {
        let directory = std::env::temp_dir().join(format!("symmem-doctor-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| CommandError::System {
            what: format!("creating {}", directory.display()),
            error,
        })?;
        let directory = Directory(directory);
        let file = directory.0.join("found.json");
        let task = Task {
            backend: self.selection.to_string(),
            kind: Kind::Doctor(part),
            json: Some(Target::Replaced(file.clone())),
            html: None,
            keeps_output_for_data: output::is_kept_for_data(),
            command: command_line(),
            summary: None,
        };
        let environment = [&self.variables[..], &also[..]].concat();
        let ended = start_ranks(&task, self.ranks, None, environment)?;
        if ended == ExitCode::from(INTERRUPTED) {
            return Err(CommandError::Interrupted);
        }
        let what = read(&file)?;
        let well = ended == ExitCode::SUCCESS && what.is_some();
        let failure = (!well).then(|| "a rank failed; the reason is above".to_owned());
        Ok(PartResult { what, failure })
    }

    fn conformance(&self, effort: Effort) -> Result<symmem_conformance::Report> {
        with_bar(&SelftestOptions {
            backend: self.selection.clone(),
            ranks: vec![self.ranks.into()],
            full: effort == Effort::Full,
            quick: effort == Effort::Quick,
            only: Some(Subject::Multicast),
            environment: self.variables.clone(),
            ends_at_failure: true,
            ..SelftestOptions::default()
        })
    }
}

/// Reads rank 0's findings; `None` if it wrote none.
fn read<T: DeserializeOwned>(file: &Path) -> Result<Option<T>> {
    let failed = |why: String| CommandError::Said(format!("reading the findings of rank 0: {why}"));
    match std::fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| failed(error.to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<T>(what: Option<T>, failure: Option<&str>) -> PartResult<T> {
        PartResult {
            what,
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_rank_that_failed_is_trouble_whatever_was_found_out() {
        let measured = || Some(Report::new(Default::default()));
        assert_eq!(of_bench(&found(measured(), None)), None);
        for found in [
            found(measured(), Some("failed")),
            found(None, Some("failed")),
        ] {
            assert_eq!(of_bench(&found).as_deref(), Some("failed"));
        }
        let without = BringUp::default();
        let failure = without.failure();
        assert!(failure.is_some());
        assert_eq!(
            of_bring_ups(&found(Some(vec![without]), Some("failed"))),
            failure
        );
        let all = found(Some(Vec::new()), Some("failed"));
        assert_eq!(of_bring_ups(&all).as_deref(), Some("failed"));
    }

    #[test]
    fn what_rank_0_never_wrote_is_nothing_and_what_cannot_be_read_is_an_error() {
        assert_eq!(read::<u32>(Path::new("/no/such/file")).unwrap(), None);
        assert!(read::<u32>(Path::new("/")).is_err());
    }
}
