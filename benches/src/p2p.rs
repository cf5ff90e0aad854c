//! Bandwidth and latency between pairs of ranks, with every point checked, and a baseline in the same run.
//!
//! Method: rank r pairs with r xor 1, or with its equal on another node, and the ranks start each measurement together, after a barrier on the
//! device. A short search chooses the geometry of each column for each size. Then all columns, baselines
//! included, take turns in rounds: 10 warm-ups, then up to 50 transfers back to back between two events, as in
//! published tables; fewer if that would take long. The result is the median over rounds of the slower rank's
//! time.

pub use super::progress::Progress;

use super::baseline::{self, Baseline};
use super::by_caller::is_by_caller;
use super::common::{SharedLimits, network};
use super::pairing::Pairing;
use super::pairs::Run;
use super::perftest::Perftest;
use super::progress::Stepper;
use super::session::Session;
use super::sizes::Effort;
use super::{BenchError, Result, latency, matrix};
use crate::report::{Direction, Environment, Report, Traffic};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use symmem::Communicator;

/// The pairs of ranks to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pairs {
    /// Each rank r with rank r xor 1, all pairs at once.
    #[default]
    Neighbors,
    /// Every pair alone, at one size.
    All,
    /// Each rank with the rank of the same local number on another node, all pairs at once.
    Nodes,
}

/// Options of [`run`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Determines sizes and rounds.
    pub effort: Effort,
    /// The pairs of ranks to measure.
    pub pairs: Pairs,
    /// Program of the NVSHMEM baseline; `None` for no baseline.
    pub baseline: Option<PathBuf>,
}

/// Measures transfers between pairs. Collective; blocks. Every rank gets the whole report. `environment` and
/// `progress` are used at rank 0 only.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks; any error of the baseline, the backend or a peer. Wrong
/// bytes are not an error: the report contains them.
pub fn run(
    communicator: &Communicator,
    options: &Options,
    environment: Environment,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let rank = communicator.rank();
    if communicator.world_size() < 2 {
        return Err(BenchError::World {
            rank,
            message: "a peer-to-peer benchmark needs 2 ranks or more; ask for them with --ranks 2"
                .into(),
        });
    }
    let across = options.pairs == Pairs::Nodes;
    let pairing = match across {
        true => Pairing::of_nodes(&communicator.rails()),
        false => Pairing::of_neighbors(communicator.world_size()),
    };
    if pairing.pairs().next().is_none() {
        return Err(BenchError::World {
            rank,
            message: "all ranks share a node, so there are no pairs of nodes; start the benchmark on each node with \
                      --nodes N --node I --rendezvous HOST:PORT"
                .into(),
        });
    }
    let common = SharedLimits::agree(communicator)?;
    let sizes = options.effort.sizes(common.limit);
    let largest = sizes.last().copied().unwrap_or_default();
    let mut report = Report::new(environment);
    report.environment.devices = common.devices.clone();
    report.environment.network = network(communicator);
    let session = Session::new(communicator, largest)?;
    let baseline = match &options.baseline {
        Some(program) => Baseline::start(communicator, program, largest.min(baseline::LARGEST))?,
        None => None,
    };
    let mut run = Run {
        session,
        capabilities: common.capabilities,
        effort: options.effort,
        by_caller: is_by_caller(communicator),
        pairing,
        across,
        perftest: None,
        has_baseline: options.baseline.is_some(),
        baseline,
    };
    if let Some(version) = run.baseline.as_ref().map(|baseline| &baseline.version) {
        let library = ("nvshmem".to_owned(), version.clone());
        report.environment.libraries.extend([library]);
    }
    report.notes = notes(communicator);
    if across {
        match Perftest::start(communicator, &run.pairing)? {
            Ok(perftest) => {
                let library = ("ucx_perftest".to_owned(), perftest.version.clone());
                report.environment.libraries.extend([library]);
                run.perftest = Some(perftest);
            }
            Err(why) => report
                .notes
                .push(format!("ucx_perftest was not measured: {why}")),
        }
    }
    let every_pair = options.pairs == Pairs::All;
    let cases = if every_pair { 0 } else { 4 * sizes.len() };
    let mut step = Stepper::new(cases + 1, progress);
    if every_pair {
        report.matrices = matrix::measure(&run, largest, &mut report.notes, &mut step)?;
    } else {
        for traffic in Traffic::ALL {
            for direction in Direction::ALL {
                for &bytes in &sizes {
                    step.next(format!("{} {} KiB", direction.label(), bytes >> 10));
                    let points = run.points(traffic, direction, bytes)?;
                    report.points.extend(points);
                }
            }
        }
    }
    step.next("latency".into());
    latency::measure(&mut run, &mut report)?;
    drop(run.baseline.take());
    run.session.finish()?;
    Ok(report)
}

fn notes(communicator: &Communicator) -> Vec<String> {
    let mut notes = Vec::new();
    if communicator.shares_device() && !is_by_caller(communicator) {
        notes.push(
            "several ranks share a device: the rates are those of its memory, and kernels take turns"
                .into(),
        );
    }
    notes
}
