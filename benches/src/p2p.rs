//! Bandwidth and latency between pairs of ranks, every point checked, beside a baseline in the same run.
//!
//! Method: ranks pair up with `rank xor 1` and start each measurement together, behind a barrier on
//! the device. For each size the geometry of each column is chosen by a short search. Then come
//! rounds in which all columns, baselines among them, take turns: 10 warm-ups, then up to 50 transfers
//! back to back between two events, as published tables have it; fewer where that would take long.
//! The slower rank of a pair counts, and of the rounds the median.

pub use super::progress::Progress;

use super::baseline::{self, Baseline};
use super::by_caller::is_by_caller;
use super::common::Common;
use super::pairs::Run;
use super::progress::Stepper;
use super::session::Session;
use super::sizes::Effort;
use super::{BenchError, Result, latency, matrix};
use crate::report::{Direction, Environment, Report, Traffic};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use symmem::Communicator;

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How many sizes and rounds.
    pub effort: Effort,
    /// Measure every pair of ranks alone, at one size, in place of all sizes.
    pub every_pair: bool,
    /// The NVSHMEM baseline's program, if it is to run beside.
    pub baseline: Option<PathBuf>,
}

/// Measures. Collective; every rank gets the whole report. `environment` and `progress` matter at
/// rank 0 only.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks; what a baseline, the backend or a peer failed with.
/// Bytes that arrive wrong are no error: the report says so.
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
    let common = Common::agree(communicator)?;
    let sizes = options.effort.sizes(common.limit);
    let largest = sizes.last().copied().unwrap_or_default();
    let mut report = Report::new(environment);
    report.environment.devices = common.devices.clone();
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
        has_baseline: options.baseline.is_some(),
        baseline,
    };
    if let Some(version) = run.baseline.as_ref().map(|baseline| &baseline.version) {
        let library = ("nvshmem".to_owned(), version.clone());
        report.environment.libraries.extend([library]);
    }
    report.notes = notes(communicator);
    let cases = if options.every_pair {
        0
    } else {
        4 * sizes.len()
    };
    let mut step = Stepper::new(cases + 1, progress);
    if options.every_pair {
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
            "several ranks share a device: rates are those of its own memory, and kernels take turns"
                .into(),
        );
    }
    notes
}
