//! The live test: its parts in turn, each in ranks of its own, until one is in trouble.
//!
//! Only here, and only for these ranks, is multicast asked for.

use super::{Arguments, Part};
use crate::command::rank::{Kind, Task, start_ranks};
use crate::command::{CommandError, Common, Result};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use symmem::bench::Effort;
use symmem::conformance::{self, SelftestOptions, Subject, selftest};
use symmem::doctor::{Coming, Trial};
use symmem::select::Selection;

/// The log of a set-up's steps, before and after each.
const STEPS: &str = "symmem_core::communicator::multicast=debug";
/// NCCL's own default: multicast where it can. It says nothing where it cannot.
const NCCL: (&str, &str) = ("NCCL_NVLS_ENABLE", "2");

type Variables = Vec<(OsString, OsString)>;

/// How ranks are started.
struct Launcher<'a> {
    selection: &'a Selection,
    ranks: u32,
    variables: Variables,
    /// Where rank 0 leaves what it found out; gone when this is dropped.
    directory: PathBuf,
}

impl Drop for Launcher<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs the parts and says how each ended. The trouble is in what it gives.
pub fn run(
    common: &Common,
    arguments: &Arguments,
    selection: &Selection,
    ranks: u32,
) -> Result<Trial> {
    let effort = common.effort();
    let steps = arguments.steps(effort, ranks);
    let directory = std::env::temp_dir().join(format!("symmem-doctor-{}", std::process::id()));
    std::fs::create_dir(&directory).map_err(|error| CommandError::System {
        what: format!("making {}", directory.display()),
        error,
    })?;
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
        directory,
    };
    let mut trial = Trial {
        ranks,
        ..Trial::default()
    };
    trial.trouble = parts(&mut trial, &launcher, arguments, effort, steps.comings)?;
    match &trial.trouble {
        None => println!("\nMulticast works on this machine, with {ranks} ranks."),
        Some(trouble) => {
            println!("\nFAILED: {trouble}");
            println!("What it can mean and how to recover: symmem doctor multicast");
        }
    }
    Ok(trial)
}

/// The parts in turn; the trouble of the first that has one.
fn parts(
    trial: &mut Trial,
    launcher: &Launcher<'_>,
    arguments: &Arguments,
    effort: Effort,
    comings: u32,
) -> Result<Option<String>> {
    if launcher.ranks < 2 {
        return Ok(Some(
            "multicast takes two devices or more, with a rank each".into(),
        ));
    }
    println!("\n1. One communicator, step by step");
    let log = std::env::var_os("SYMMEM_LOG").unwrap_or_else(|| STEPS.into());
    let log = vec![("SYMMEM_LOG".into(), log)];
    trial.set_up = launcher.found(Part::Comings(1), log)?;
    if let Some(trouble) = of_comings(&trial.set_up, 1) {
        return Ok(Some(format!("set-up: {trouble}")));
    }
    println!("\n2. Conformance");
    let report = launcher.conformance(effort)?;
    println!("  {}", report.totals);
    let trouble = of_conformance(&report);
    trial.conformance = Some(report);
    if let Some(trouble) = trouble {
        return Ok(Some(format!("conformance: {trouble}")));
    }
    println!("\n3. {comings} communicators, one after the other");
    trial.comings = launcher.found(Part::Comings(comings), Variables::new())?;
    if let Some(trouble) = of_comings(&trial.comings, comings) {
        return Ok(Some(format!("set-up and giving back: {trouble}")));
    }
    println!("\n4. Measured");
    let mut nccl = Variables::new();
    // What says 0 was refused before.
    if std::env::var_os(NCCL.0).is_none_or(|value| value.is_empty()) {
        nccl.push((NCCL.0.into(), NCCL.1.into()));
    }
    let report: Option<symmem::report::Report> =
        launcher.found(Part::Bench(arguments.bench(effort)), nccl)?;
    let trouble = match &report {
        None => Some("a rank failed; it says why above".to_owned()),
        Some(report) if report.is_wrong() => Some("results were wrong; see the table".to_owned()),
        Some(_) => None,
    };
    trial.bench = report;
    Ok(trouble.map(|trouble| format!("measuring: {trouble}")))
}

fn of_comings(all: &[Coming], wanted: u32) -> Option<String> {
    let found = all.iter().find_map(Coming::trouble);
    found.or_else(|| {
        let missing = all.len() < wanted as usize;
        missing.then(|| "a rank failed; it says why above".into())
    })
}

fn of_conformance(report: &conformance::Report) -> Option<String> {
    for world in &report.worlds {
        if let Some(trouble) = &world.trouble {
            return Some(trouble.clone());
        }
        if world.about.multicast != "HARDWARE" {
            return Some(format!("all ranks agreed on {}", world.about.multicast));
        }
        let failed = |case: &conformance::NamedRecord| match &case.record.outcome {
            conformance::Outcome::Passed => None,
            conformance::Outcome::Failed(reason) => Some(format!("{}: {reason}", case.name)),
            conformance::Outcome::Skipped(reason) => {
                Some(format!("{} was not run: {reason}", case.name))
            }
        };
        if let Some(failed) = world.cases.iter().find_map(failed) {
            return Some(failed);
        }
    }
    (report.totals.passed == 0).then(|| "there was no case".into())
}

impl Launcher<'_> {
    /// Runs a part, with these variables too, and reads what rank 0 found out; nothing where a rank failed.
    fn found<T: Default + DeserializeOwned>(&self, part: Part, also: Variables) -> Result<T> {
        let file = self.directory.join("found.json");
        let task = Task {
            backend: self.selection.to_string(),
            kind: Kind::Doctor(part),
            json: Some(file.clone()),
            html: None,
            command: std::env::args().collect::<Vec<_>>().join(" "),
        };
        let environment = [&self.variables[..], &also[..]].concat();
        // What is printed here comes before what ranks print.
        let _ = std::io::stdout().flush();
        if start_ranks(&task, self.ranks, environment)? != ExitCode::SUCCESS {
            return Ok(T::default());
        }
        let failed = |why: String| CommandError::Said(format!("what rank 0 found out: {why}"));
        let text = std::fs::read_to_string(&file).map_err(|error| failed(error.to_string()))?;
        let _ = std::fs::remove_file(&file);
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }

    fn conformance(&self, effort: Effort) -> Result<conformance::Report> {
        let options = SelftestOptions {
            backend: self.selection.clone(),
            ranks: vec![self.ranks],
            full: effort == Effort::Full,
            quick: effort == Effort::Quick,
            only: Some(Subject::Multicast),
            environment: self.variables.clone(),
            ..SelftestOptions::default()
        };
        Ok(selftest(&options, |_, _, _| ())?)
    }
}
