//! The suite from the installed binary, for a machine nobody has seen.

use super::case::{Case, Outcome, Placement};
use super::collectives::{self, SoakCase, plan::Sizes};
use super::plan;
use super::products;
use super::rank::About;
use super::world::{Record, World, WorldError, WorldOptions};
use crate::select::{self, Selection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use symmem_core::Error;

/// The argument by which the `symmem` command becomes a rank of the selftest.
pub const RANK_ARGUMENT: &str = "rank-selftest";

/// The schema that this version writes.
pub const SCHEMA: &str = "symmem-selftest/2";

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Puts, gets, signals, barriers and what goes with them.
    Transfers,
    /// Collectives.
    Collectives,
    /// Products of matrices that gather.
    Products,
    /// Of the collectives those that go by multicast, or as if.
    Multicast,
}

/// One of several equal shares, numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which.
    pub number: usize,
    /// Of how many.
    pub of: usize,
}

impl Share {
    /// Leaves every `of`-th case, so that all shares have cases of all kinds.
    fn take<T>(self, cases: &mut Vec<T>) {
        let mut index = 0;
        cases.retain(|_| {
            index += 1;
            index % self.of == self.number % self.of
        });
    }
}

impl std::str::FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&number).then_some(Self { number, of })
        });
        numbers.ok_or_else(|| format!("`{text}` is no share; write 1/4 to 4/4"))
    }
}

/// What to test.
#[derive(Clone, Debug)]
pub struct SelftestOptions {
    /// The backend.
    pub backend: Selection,
    /// World sizes; empty for 1, 2 and one rank a device (4 ranks on the host).
    pub ranks: Vec<u32>,
    /// All cases in place of the sample.
    pub full: bool,
    /// A quarter of the sample.
    pub quick: bool,
    /// Only cases of this.
    pub only: Option<Subject>,
    /// Only one of so many equal shares of the cases, from the first on: several runs have them all.
    pub share: Option<Share>,
    /// Mixed collectives for so long, shared out among the worlds, in place of cases.
    pub soak: Option<Duration>,
    /// Seeds the sample and the data.
    pub seed: u64,
    /// The program that is a rank when its arguments say so; `None` for this one.
    pub program: Option<PathBuf>,
    /// The arguments that say so.
    pub arguments: Vec<OsString>,
    /// Variables to set for every rank.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether all is over with the first case that does not pass, as in [`WorldOptions::ends_at_failure`]: the
    /// report ends with it.
    pub ends_at_failure: bool,
}

impl Default for SelftestOptions {
    fn default() -> Self {
        Self {
            backend: Selection::Auto,
            ranks: Vec::new(),
            full: false,
            quick: false,
            only: None,
            share: None,
            soak: None,
            seed: plan::SEED,
            program: None,
            arguments: vec![RANK_ARGUMENT.into()],
            environment: Vec::new(),
            ends_at_failure: false,
        }
    }
}

/// Every case with its outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of symmem.
    pub version: String,
    /// The backend's name.
    pub backend: String,
    /// Whether all cases were run, or the sample.
    pub full: bool,
    /// Whether it was a quarter of the sample.
    #[serde(default)]
    pub quick: bool,
    /// The seed.
    pub seed: u64,
    /// Over all worlds.
    pub totals: Totals,
    /// One for each world size.
    pub worlds: Vec<WorldReport>,
}

/// What became of the cases of one world.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorldReport {
    /// Ranks.
    pub world: u32,
    /// What it ran on.
    pub about: About,
    /// What was wrong with the world itself: it did not start or did not end in good order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its cases, in order.
    pub cases: Vec<NamedRecord>,
}

impl WorldReport {
    /// Whether every case passed, and the world started and ended in good order.
    fn has_passed(&self) -> bool {
        let passed = |case: &NamedRecord| case.record.outcome == Outcome::Passed;
        self.trouble.is_none() && self.cases.iter().all(passed)
    }
}

/// A [`Record`] with the case's name for people.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamedRecord {
    /// The case's name.
    pub name: String,
    /// The case, its outcome and duration.
    #[serde(flatten)]
    pub record: Record,
}

/// Cases counted by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Passed.
    pub passed: usize,
    /// Skipped, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Failed.
    pub failed: usize,
}

impl Totals {
    /// Counts an outcome.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Skipped(reason) => *self.skipped.entry(reason.clone()).or_default() += 1,
            Outcome::Failed(_) => self.failed += 1,
        }
    }

    /// Adds what another counted.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        for (reason, count) in &other.skipped {
            *self.skipped.entry(reason.clone()).or_default() += count;
        }
    }

    /// Cases in all.
    pub fn cases(&self) -> usize {
        self.passed + self.failed + self.skipped.values().sum::<usize>()
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let skipped: usize = self.skipped.values().sum();
        write!(
            formatter,
            "{} passed, {} failed, {skipped} skipped",
            self.passed, self.failed
        )?;
        for (index, (reason, count)) in self.skipped.iter().enumerate() {
            write!(
                formatter,
                "{}{count}: {reason}",
                if index == 0 { " (" } else { "; " }
            )?;
        }
        if skipped > 0 {
            write!(formatter, ")")
        } else {
            Ok(())
        }
    }
}

impl Report {
    /// Whether every case passed or was skipped, and every world started and ended in good order.
    pub fn is_clean(&self) -> bool {
        self.totals.failed == 0 && self.worlds.iter().all(|world| world.trouble.is_none())
    }
}

/// Runs the suite on this machine: one world of processes for each size, launched once.
///
/// `progress` is told how many cases are done of how many, and of the last one. Blocks until all are
/// done.
///
/// # Errors
/// [`Error::NoBackend`] with every probe; [`Error::System`] if this program cannot be found. A world
/// that does not start is in the report.
pub fn selftest(
    options: &SelftestOptions,
    mut progress: impl FnMut(usize, usize, &Record),
) -> symmem_core::Result<Report> {
    let chosen = select::choose(&options.backend)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|error| Error::System {
            rank: 0,
            call: "finding this program",
            reason: error.to_string(),
        })?,
    };
    let sizes = sizes(options, &chosen.name, chosen.devices);
    let cases = cases(options, sizes.len());
    let all: usize = cases.iter().map(Vec::len).sum();
    let mut done = 0;
    let mut report = Report {
        schema: SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        backend: chosen.name.clone(),
        full: options.full,
        quick: options.quick,
        seed: options.seed,
        totals: Totals::default(),
        worlds: Vec::new(),
    };
    for (world, cases) in sizes.into_iter().zip(cases) {
        let world_options = WorldOptions {
            backend: match &options.backend {
                // Every rank takes what was chosen here.
                Selection::Auto => Selection::Named(chosen.name.clone()),
                named => named.clone(),
            },
            arguments: options.arguments.clone(),
            environment: options.environment.clone(),
            ends_at_failure: options.ends_at_failure,
            ..WorldOptions::new(world, &program)
        };
        let mut each = |record: &Record| {
            done += 1;
            report.totals.count(&record.outcome);
            progress(done, all, record);
        };
        let ran = run_world(world_options, &cases, &mut each);
        let ends = options.ends_at_failure && !ran.has_passed();
        report.worlds.push(ran);
        if ends {
            break;
        }
    }
    Ok(report)
}

fn run_world(options: WorldOptions, cases: &[Case], each: &mut dyn FnMut(&Record)) -> WorldReport {
    let world = options.ranks;
    let (about, records, trouble): (_, Vec<Record>, Option<WorldError>) =
        match World::launch(options) {
            Ok(mut launched) => {
                let records = launched.run(cases, each);
                (launched.about().clone(), records, launched.finish().err())
            }
            Err(error) => {
                let records = cases.iter().map(|case| Record {
                    case: case.clone(),
                    outcome: Outcome::Failed(format!("not run: {error}")),
                    nanoseconds: 0,
                });
                let records: Vec<Record> = records.collect();
                records.iter().for_each(each);
                (About::default(), records, Some(error))
            }
        };
    let named = |record: Record| NamedRecord {
        name: record.case.to_string(),
        record,
    };
    WorldReport {
        world,
        about,
        trouble: trouble.map(|error| error.to_string()),
        cases: records.into_iter().map(named).collect(),
    }
}

fn sizes(options: &SelftestOptions, backend: &str, devices: u32) -> Vec<u32> {
    if !options.ranks.is_empty() {
        return options.ranks.clone();
    }
    let most = if backend == "host" { 4 } else { devices };
    let mut sizes = vec![1, 2, most];
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The cases of each world.
fn cases(options: &SelftestOptions, worlds: usize) -> Vec<Vec<Case>> {
    let mut cases = vec![Vec::new(); worlds];
    if let Some(time) = options.soak {
        for cases in &mut cases {
            *cases = soak(time / worlds as u32, options.seed);
        }
        return cases;
    }
    let sizes = if options.quick {
        Sizes::Small
    } else {
        Sizes::Large
    };
    let wants = |subject| options.only.is_none_or(|only| only == subject);
    for (world, cases) in cases.iter_mut().enumerate() {
        if wants(Subject::Transfers) {
            cases.extend(if options.full {
                plan::full(options.seed).map(Case::Transfer).collect()
            } else {
                of_world(plan::sample(worlds, options.seed), world, Case::Transfer)
            });
        }
        let by_multicast = options.only == Some(Subject::Multicast);
        if wants(Subject::Collectives) || by_multicast {
            let mut all: Vec<Case> = if options.full {
                collectives::plan::full(options.seed).collect()
            } else {
                let sample = collectives::plan::sample(worlds, sizes, options.seed);
                of_world(sample, world, std::convert::identity)
            };
            if by_multicast {
                all.retain(is_by_multicast);
            }
            cases.extend(all);
        }
        if wants(Subject::Products) {
            cases.extend(if options.full {
                products::full(options.seed).collect()
            } else {
                let sample = products::sample(worlds, options.seed);
                of_world(sample, world, std::convert::identity)
            });
        }
        if options.quick {
            thin(cases);
        }
        if let Some(share) = options.share {
            share.take(cases);
        }
        // A world opens a communicator for each placement: in turn, once.
        cases.sort_by_key(|case| case.placement() != Placement::Device);
    }
    cases
}

fn is_by_multicast(case: &Case) -> bool {
    matches!(case, Case::Collective(case) if case.way.algorithm.is_multicast())
}

fn of_world<C>(sample: Vec<(usize, C)>, world: usize, case: fn(C) -> Case) -> Vec<Case> {
    let here = sample.into_iter().filter(|(of, _)| *of == world);
    here.map(|(_, of)| case(of)).collect()
}

/// Leaves out three cases of four, but of each operation and algorithm at least one.
fn thin(cases: &mut Vec<Case>) {
    let mut seen = std::collections::HashSet::new();
    let mut number = 0;
    cases.retain(|case| {
        number += 1;
        let kind = match case {
            Case::Transfer(case) => format!("{:?} {:?}", case.operation, case.engine.method),
            Case::Collective(case) => case.way.to_string(),
            Case::Product(case) => format!("{:?}", case.way),
            other => other.to_string(),
        };
        seen.insert(kind) || number % 4 == 0
    });
}

/// Mixed calls for so long, in stretches that a world's hard limit has room for.
fn soak(time: Duration, seed: u64) -> Vec<Case> {
    const STRETCH: u64 = 5000;
    let milliseconds = time.as_millis() as u64;
    let stretches = (0..milliseconds).step_by(STRETCH as usize).map(|begin| {
        Case::Soak(SoakCase {
            milliseconds: STRETCH.min(milliseconds - begin),
            seed: seed.wrapping_add(begin),
        })
    });
    stretches.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_are_all_cases_and_no_case_is_in_two() {
        let all: Vec<u32> = (0..23).collect();
        for of in 1..=5 {
            let mut together = Vec::new();
            for number in 1..=of {
                let mut share = all.clone();
                Share { number, of }.take(&mut share);
                assert!(share.len().abs_diff(all.len() / of) <= 1);
                together.extend(share);
            }
            together.sort_unstable();
            assert_eq!(together, all);
        }
    }

    #[test]
    fn multicast_alone_is_every_operation_that_goes_by_it_and_nothing_else() {
        let options = SelftestOptions {
            only: Some(Subject::Multicast),
            quick: true,
            ..SelftestOptions::default()
        };
        let cases = cases(&options, 1).remove(0);
        assert!(cases.iter().all(is_by_multicast));
        let ways = |cases: &[Case]| -> std::collections::HashSet<String> {
            let named = cases.iter().filter_map(|case| match case {
                Case::Collective(case) => Some(case.way.to_string()),
                _ => None,
            });
            named.collect()
        };
        assert_eq!(ways(&cases).len(), 6, "{:?}", ways(&cases));
    }

    #[test]
    fn a_share_is_one_of_so_many() {
        assert_eq!("2/3".parse(), Ok(Share { number: 2, of: 3 }));
        for wrong in ["", "3", "0/3", "4/3", "1/0", "a/b"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }
}
