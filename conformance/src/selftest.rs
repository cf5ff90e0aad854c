//! Runs the suite from the installed command, without sources or a build.

use super::case::Case;
use super::collectives::{self, MulticastKernels, SoakCase, SoakLoad, plan::Sizes};
use super::norms;
use super::outcome::Outcome;
use super::plan;
use super::products;
use super::rank::WorldDescription;
use super::ranks_per_node::RanksPerNode;
use super::reduced_products;
use super::report::{NamedRecord, Report, Totals, WorldReport, is_by_multicast};
use super::transfer_case::{Placement, TransferCase};
use super::world::{Record, World, WorldError, WorldOptions};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use symmem::Error;
use symmem::backends::{self as select, Selection};

/// The argument that makes the `symmem` command a rank of the selftest.
pub const RANK_ARGUMENT: &str = "rank-selftest";

/// The report schema that this version writes.
pub const SCHEMA: &str = "symmem-selftest/2";

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Puts, gets, signals, barriers, host copies, refusals and registration.
    Transfers,
    /// Collectives.
    Collectives,
    /// All-gather + GEMM.
    Products,
    /// All-reduces of rows with a residual and a norm.
    Norms,
    /// GEMM + reduce-scatter and GEMM + all-reduce.
    ReducedProducts,
    /// Collectives that name a multicast algorithm.
    Multicast,
}

/// One of several equal shares of the cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of this share, from 1 to `of`.
    pub number: usize,
    /// Number of shares.
    pub of: usize,
}

impl Share {
    /// Keeps every `of`-th case, so that all shares have cases of all kinds.
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
        numbers.ok_or_else(|| format!("`{text}` is not a share; write for example 1/4"))
    }
}

/// Options of [`selftest`].
#[derive(Clone, Debug)]
pub struct SelftestOptions {
    /// The backend.
    pub backend: Selection,
    /// The ranks of each world, by node; empty for 1, 2 and one rank per device (4 ranks on the host backend), on one node.
    pub ranks: Vec<RanksPerNode>,
    /// Run all cases instead of the sample.
    pub full: bool,
    /// Run a quarter of the sample.
    pub quick: bool,
    /// Run only this part of the suite.
    pub only: Option<Subject>,
    /// Run only one share of the cases; the runs of all shares together cover every case.
    pub share: Option<Share>,
    /// Run mixed collectives for this time instead of cases; the worlds divide the time equally.
    pub soak: Option<Duration>,
    /// What the soak calls.
    pub load: SoakLoad,
    /// Seed of the sample and of the data.
    pub seed: u64,
    /// The program that runs as a rank when given `arguments`; `None` for the current executable.
    pub program: Option<PathBuf>,
    /// Arguments that make `program` run as a rank.
    pub arguments: Vec<OsString>,
    /// Variables to set for every rank.
    pub environment: Vec<(OsString, OsString)>,
    /// Stop after the first case that does not pass, as in [`WorldOptions::ends_at_failure`]; the report ends with
    /// that case.
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
            load: SoakLoad::Mixed,
            seed: plan::SEED,
            program: None,
            arguments: vec![RANK_ARGUMENT.into()],
            environment: Vec::new(),
            ends_at_failure: false,
        }
    }
}

/// Runs the suite on this machine: one world of processes per world size, launched once.
///
/// Calls `progress` after each case with the number of finished cases, the number of all cases and the
/// record of the case. Blocks until all cases are done.
///
/// # Errors
/// [`Error::NoBackend`] with the result of every probe; [`Error::System`] if the path of the current
/// executable cannot be found. A world that does not start is not an error: the report says so.
pub fn selftest(
    options: &SelftestOptions,
    mut progress: impl FnMut(usize, usize, &Record),
) -> symmem::Result<Report> {
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
    let cases = cases(options, &sizes);
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
                // Every rank uses the backend that was chosen here.
                Selection::Auto => Selection::Named(chosen.name.clone()),
                named => named.clone(),
            },
            devices: chosen.devices,
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
        for NamedRecord { record, .. } in &ran.cases {
            if record.outcome == Outcome::Passed {
                (report.totals).count_multicast(&record.case, ran.world, &ran.about);
            }
        }
        let ends = options.ends_at_failure && !ran.has_passed();
        report.worlds.push(ran);
        if ends {
            break;
        }
    }
    Ok(report)
}

fn run_world(options: WorldOptions, cases: &[Case], each: &mut dyn FnMut(&Record)) -> WorldReport {
    let ranks = options.ranks.clone();
    let (about, records, failure): (_, Vec<Record>, Option<WorldError>) =
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
                (WorldDescription::default(), records, Some(error))
            }
        };
    let named = |record: Record| NamedRecord {
        name: record.case.to_string(),
        record,
    };
    WorldReport {
        world: ranks.world(),
        ranks_per_node: ranks.to_string(),
        about,
        failure: failure.map(|error| error.to_string()),
        cases: records.into_iter().map(named).collect(),
    }
}

fn sizes(options: &SelftestOptions, backend: &str, devices: u32) -> Vec<RanksPerNode> {
    if !options.ranks.is_empty() {
        return options.ranks.clone();
    }
    let most = if backend == "host" { 4 } else { devices };
    let mut sizes = vec![1, 2, most];
    sizes.sort_unstable();
    sizes.dedup();
    sizes.into_iter().map(RanksPerNode::from).collect()
}

/// Returns the cases of each world; `ranks` has the ranks of each.
fn cases(options: &SelftestOptions, ranks: &[RanksPerNode]) -> Vec<Vec<Case>> {
    let worlds = ranks.len();
    let mut cases = vec![Vec::new(); worlds];
    if let Some(time) = options.soak {
        for cases in &mut cases {
            *cases = soak(time / worlds as u32, options);
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
                let sample = plan::sample(worlds, options.seed);
                of_world(
                    sample,
                    world,
                    match ranks[world].spans_nodes() {
                        true => |case: TransferCase| Case::Transfer(case.over_nodes()),
                        false => Case::Transfer,
                    },
                )
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
        if wants(Subject::Norms) {
            cases.extend(if options.full {
                norms::full(options.seed).collect()
            } else {
                let sample = norms::sample(worlds, sizes, options.seed);
                of_world(sample, world, std::convert::identity)
            });
        }
        if wants(Subject::ReducedProducts) {
            cases.extend(if options.full {
                reduced_products::full(options.seed).collect()
            } else {
                let sample = reduced_products::sample(worlds, options.seed);
                of_world(sample, world, std::convert::identity)
            });
        }
        if options.quick {
            thin(cases, ranks[world].world());
        }
        if let Some(share) = options.share {
            share.take(cases);
        }
        // Sorted by placement, since a world opens one communicator per placement, one after the other.
        cases.sort_by_key(|case| case.placement() != Placement::Device);
    }
    cases
}

fn of_world<C>(sample: Vec<(usize, C)>, world: usize, case: fn(C) -> Case) -> Vec<Case> {
    let here = sample.into_iter().filter(|(of, _)| *of == world);
    here.map(|(_, of)| case(of)).collect()
}

/// Keeps every fourth case, and at least one of each operation and algorithm; for multicast, at least one that runs
/// multicast kernels.
fn thin(cases: &mut Vec<Case>, world: u32) {
    let mut seen = std::collections::HashSet::new();
    let mut number = 0;
    cases.retain(|case| {
        number += 1;
        let kind = match case {
            Case::Transfer(case) => format!("{:?} {:?}", case.operation, case.engine.method),
            Case::Collective(case) => {
                let by_kernels = case.uses_multicast(world as usize, MulticastKernels::LEAST);
                format!("{} {by_kernels}", case.variant)
            }
            Case::AllGatherGemm(case) => format!("{:?} {:?}", case.variant, case.element),
            Case::Norm(case) => format!("{:?} {:?}", case.norm, case.output),
            Case::GemmReduce(case) => format!("{:?} {:?}", case.reduction, case.variant),
            other => other.to_string(),
        };
        seen.insert(kind) || number % 4 == 0
    });
}

/// Returns soak cases for `time`, each short enough for the world's time limit per case.
fn soak(time: Duration, options: &SelftestOptions) -> Vec<Case> {
    const STRETCH: u64 = 5000;
    let milliseconds = time.as_millis() as u64;
    let stretches = (0..milliseconds).step_by(STRETCH as usize).map(|begin| {
        Case::Soak(SoakCase {
            milliseconds: STRETCH.min(milliseconds - begin),
            seed: options.seed.wrapping_add(begin),
            load: options.load,
        })
    });
    stretches.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::CollectiveVariant;
    use crate::report::{uses_multicast, variant};
    use std::collections::HashSet;

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
    fn multicast_alone_is_every_way_that_goes_by_it_and_quickly_too_each_has_a_case_that_does() {
        let options = SelftestOptions {
            only: Some(Subject::Multicast),
            quick: true,
            ..SelftestOptions::default()
        };
        for seed in [plan::SEED, 1, 2] {
            let options = SelftestOptions {
                seed,
                ..options.clone()
            };
            let all = cases(&options, &[2.into()]).remove(0);
            assert!(all.iter().all(is_by_multicast));
            let goes = |case: &&Case| uses_multicast(case, 2, MulticastKernels::LEAST);
            let variants: HashSet<CollectiveVariant> =
                all.iter().filter(goes).filter_map(variant).collect();
            assert_eq!(variants.len(), 6, "seed {seed}: {variants:?}");
        }
    }

    #[test]
    fn a_quarter_has_a_case_that_goes_by_multicast_also_behind_one_that_does_not() {
        let goes = |case: &Case| uses_multicast(case, 2, MulticastKernels::LEAST);
        let sample = collectives::plan::sample(1, Sizes::Small, plan::SEED);
        let all = of_world(sample, 0, std::convert::identity);
        let first = |wanted| {
            let named =
                |case: &&Case| variant(case).is_some_and(|variant| variant.to_string() == WAY);
            let found = all.iter().filter(named).find(|case| goes(case) == wanted);
            found.unwrap().clone()
        };
        const WAY: &str = "AllReduce/Multicast";
        let mut cases = vec![first(false), first(true), first(true)];
        thin(&mut cases, 2);
        assert_eq!(cases, [first(false), first(true)]);
    }

    #[test]
    fn a_share_is_one_of_so_many() {
        assert_eq!("2/3".parse(), Ok(Share { number: 2, of: 3 }));
        for wrong in ["", "3", "0/3", "4/3", "1/0", "a/b"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }
}
