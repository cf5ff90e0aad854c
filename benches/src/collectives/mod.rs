//! Collectives, every point checked, beside their baselines in the same run.
//!
//! Method: sizes, counts and formulas are nccl-tests'. At each size every library is first checked, out
//! of place and in place, on random data in poisoned memory with a guard behind it. Then come rounds in
//! which all libraries take turns, each with calls back to back on a stream and with a graph of calls,
//! captured once and replayed; one call, or replay, goes before the clock starts. The slowest rank of a
//! round counts, and of the rounds the median. Last come single calls, timed by the host from a barrier
//! to the call's end.
//!
//! `shape` says what moves where, `data` makes elements and checks results, `session` is one rank's
//! buffers and clock, `contender` and `external` are the libraries, `points` the rounds; `named` leaves out what
//! would be measured under another's name.

mod contender;
mod data;
pub(super) mod element;
mod external;
mod named;
mod points;
pub(super) mod session;
pub(super) mod shape;

pub use contender::{baseline_names, is_baseline};
pub use element::nccl_name;
pub use symmem::tuning::algorithm;

use super::by_caller::is_by_caller;
use super::common::Common;
use super::outcome::Outcome;
use super::progress::Progress;
use super::sizes::{Effort, powers_of_two};
use super::{BenchError, Result};
use crate::report::collectives::BaselineState;
use crate::report::{Collective, Collectives, Environment, Report};
use contender::{By, Contender, contenders, usual};
use element::{Sample, with_element};
use external::External;
use points::Run;
use serde::{Deserialize, Serialize};
use symmem::Communicator;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How many sizes and rounds, where nothing else is said.
    pub effort: Effort,
    /// The operations.
    pub collectives: Vec<Collective>,
    /// The smallest size, bytes; powers of two up from it are measured.
    pub min_bytes: Option<u64>,
    /// The largest.
    pub max_bytes: Option<u64>,
    /// nccl-tests' name of the element type; `None` for what most serve with: `bfloat16`, and `float`
    /// on the host, where MPI adds no other of the two.
    pub element: Option<String>,
    /// Names of baselines ([`is_baseline`]); `None` for what is usual on the backend.
    pub baselines: Option<Vec<String>>,
    /// The algorithm's name; `None` for the selector's choice.
    pub algorithm: Option<String>,
    /// [`symmem::CollectiveOptions::concurrent`] of our calls.
    pub concurrent: Option<u32>,
    /// Rounds.
    pub rounds: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            effort: Effort::default(),
            collectives: DEFAULT.into(),
            min_bytes: None,
            max_bytes: None,
            element: None,
            baselines: None,
            algorithm: None,
            concurrent: None,
            rounds: None,
        }
    }
}

/// What is measured where nothing else is said.
pub const DEFAULT: [Collective; 4] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
];

impl Options {
    /// A handful of sizes, without programs beside us: what the command without arguments shows.
    pub fn short() -> Self {
        Self {
            effort: Effort::Quick,
            baselines: Some(vec!["nccl".into(), "nccl-windows".into()]),
            ..Self::default()
        }
    }

    /// nccl-tests' name of the element type to measure with.
    pub(super) fn element(&self, communicator: &Communicator) -> &str {
        match &self.element {
            Some(name) => name,
            None if is_by_caller(communicator) => "float",
            None => "bfloat16",
        }
    }

    /// Sizes to measure, rising, none above `limit` but the first.
    ///
    /// # Errors
    /// [`BenchError::World`] if the smallest is larger than the largest.
    pub(super) fn sizes(&self, rank: usize, limit: u64) -> Result<Vec<u64>> {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        let largest = match self.effort {
            Effort::Quick => MIB,
            Effort::Standard => 64 * MIB,
            Effort::Full => 1024 * MIB,
        };
        let most = (self.max_bytes).unwrap_or(largest.max(self.min_bytes.unwrap_or(0)));
        let least = self.min_bytes.unwrap_or(KIB.min(most));
        if least > most {
            let message = format!(
                "nothing is at least {least} bytes long and at most {most}; give a larger --max-bytes"
            );
            return Err(BenchError::World { rank, message });
        }
        let quick = self.effort == Effort::Quick && self.max_bytes.is_none();
        let all = powers_of_two(least, most.min(limit).max(least)).into_iter();
        // Every fifth power of two: 1 KiB, 32 KiB, 1 MiB.
        Ok(all
            .enumerate()
            .filter(|(index, _)| !quick || index % 5 == 0)
            .map(|(_, bytes)| bytes)
            .collect())
    }
}

/// Measures. Collective; every rank gets the whole report. `environment` and `progress` matter at
/// rank 0 only.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks or an element type that cannot be measured; what the
/// backend or a peer failed with. A baseline that is absent or breaks off is no error: the report says
/// so. Nor are wrong elements.
pub fn run(
    communicator: &Communicator,
    options: &Options,
    environment: Environment,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let mut report = Report::new(environment);
    add(communicator, options, &mut report, progress)?;
    Ok(report)
}

/// As [`run`], into a report that has other figures already.
///
/// # Errors
/// As [`run`].
pub fn add(
    communicator: &Communicator,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let rank = communicator.rank();
    let impossible = |message: String| Err(BenchError::World { rank, message });
    if communicator.world() < 2 {
        return impossible("collectives need 2 ranks or more; ask for them with --ranks 2".into());
    }
    let element = options.element(communicator);
    with_element!(element, T => {
        measure::<T>(communicator, options, report, progress)
    }, else {
        impossible(format!("elements of type {element} cannot be measured"))
    })
}

fn measure<T: Sample>(
    communicator: &Communicator,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let common = Common::agree(communicator)?;
    let rank = communicator.rank();
    let sizes = options.sizes(rank, common.limit)?;
    let largest = sizes.last().copied().unwrap_or_default();
    report.environment.devices = common.devices;
    let names: Vec<&str> = match &options.baselines {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => usual(is_by_caller(communicator)).into(),
    };
    let mut section = Collectives {
        world: communicator.world() as u32,
        ..Collectives::default()
    };
    let mut run = Run::<T>::new(communicator, options, largest)?;
    let impossible = |message| Err(BenchError::World { rank, message });
    // It would be left out, or go by the members' own addresses and be taken for multicast.
    if let Some(why) = run.without_multicast(By::Us) {
        return impossible(format!("there is no multicast to be measured: {why}"));
    }
    if let Some(why) = run.goes_by_none(&options.collectives, largest)? {
        let named = options.algorithm.as_deref().unwrap_or_default();
        return impossible(format!("nothing here goes by {named}: {why}"));
    }
    for contender in contenders(&names, &report.environment.backend) {
        let outcome = join(&mut run, &contender, largest)?;
        if contender.by != By::Us {
            section.baselines.push(BaselineState {
                name: contender.name.into(),
                version: outcome.as_ref().ok().cloned(),
                absent: outcome.as_ref().err().cloned(),
            });
        }
        if outcome.is_ok() {
            run.contenders.push(contender);
        }
    }
    let total = options.collectives.len() * sizes.len();
    let cases = (options.collectives.iter())
        .flat_map(|&collective| sizes.iter().map(move |&bytes| (collective, bytes)));
    for (done, (collective, bytes)) in cases.enumerate() {
        progress(Progress {
            done,
            total,
            what: format!("{} {} KiB", collective.name(), bytes >> 10),
        });
        section.points.extend(run.points(collective, bytes)?);
    }
    section.barrier = Some(run.barrier()?);
    report.notes.extend(run.finish()?);
    section.summary = section.summarise();
    report.collectives = Some(section);
    Ok(())
}

/// Gets a library ready: its version, or why it cannot take part. Collective.
fn join<T: Sample>(
    run: &mut Run<'_, T>,
    contender: &Contender,
    largest: u64,
) -> Result<Outcome<String>> {
    match contender.by {
        by @ (By::Us | By::Own(_)) => Ok(match run.without_multicast(by) {
            Some(why) => Err(why),
            None => Ok(env!("CARGO_PKG_VERSION").into()),
        }),
        By::Vendor { windows } => run.open_vendor(windows),
        By::Program(program, _) => {
            if let Some(external) = run.externals.iter().find(|(known, _)| *known == program) {
                return Ok(Ok(external.1.version.clone()));
            }
            let started = External::start(run.communicator(), program, largest)?;
            Ok(started.map(|external| {
                let version = external.version.clone();
                run.externals.push((program, external));
                version
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_between_what_was_asked_for() {
        let asked = |min, max, limit| {
            let options = Options {
                min_bytes: min,
                max_bytes: max,
                ..Options::default()
            };
            options.sizes(0, limit)
        };
        let sizes = |min, max, limit| asked(min, max, limit).unwrap();
        const ANY: u64 = u64::MAX;
        assert_eq!(sizes(Some(1024), Some(8192), ANY), [1024, 2048, 4096, 8192]);
        assert_eq!(sizes(Some(8), Some(32), 16), [8, 16]);
        assert_eq!(sizes(Some(4096), None, 1), [4096]);
        let standard = sizes(None, None, ANY);
        assert_eq!((standard[0], standard.len()), (1024, 17));
        let short = Options::short().sizes(0, ANY).unwrap();
        assert_eq!(short, [1 << 10, 1 << 15, 1 << 20]);
        // What is usual gives way to what was asked for; what was asked for does not.
        assert_eq!(sizes(None, Some(512), ANY), [512]);
        assert_eq!(sizes(Some(1 << 40), None, ANY), [1 << 40]);
        assert_eq!(sizes(Some(1 << 63), None, ANY), [1 << 63]);
        let none = asked(Some(1024), Some(512), ANY).unwrap_err().to_string();
        assert!(none.contains("at least 1024") && none.contains("at most 512"));
    }
}
