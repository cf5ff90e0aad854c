//! Bandwidth and latency between pairs of ranks, every point checked, beside a baseline in the same run.
//!
//! Method: ranks pair up with `rank xor 1` and start each measurement together, behind a barrier on
//! the device. For each size the geometry of each column is chosen by a short search. Then come
//! rounds in which all columns, baselines among them, take turns: 10 warm-ups, then up to 50 transfers
//! back to back between two events, as published tables have it; fewer where that would take long.
//! The slower rank of a pair counts, and of the rounds the median.

use super::baseline::{self, Baseline};
use super::candidates::Candidate;
use super::session::{Case, Session, is_by_caller};
use super::sizes::{Effort, fewer_rounds};
use super::{BenchError, Result, exchange, latency, matrix};
use crate::report::{Direction, Environment, Report, Traffic};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use symmem::Communicator;
use symmem::backend::abi::Capabilities;
use symmem::backend::read_text;

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

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub total: usize,
    /// What is measured now.
    pub what: String,
}

/// Time for all rounds of one point of one kind. On the host, where one copy of 64 MiB takes many
/// milliseconds, less, so that a whole run takes seconds.
const POINT_NS: f64 = 50e6;
const POINT_NS_ON_HOST: f64 = 12e6;

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
    if communicator.world() < 2 {
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
    let mut step = Stepper {
        done: 0,
        total: cases + 1,
        progress,
    };
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

/// Counts steps and tells of them.
pub(super) struct Stepper<'a> {
    done: usize,
    total: usize,
    progress: &'a mut dyn FnMut(Progress),
}

impl Stepper<'_> {
    /// More steps than were known of.
    pub(super) fn expect(&mut self, more: usize) {
        self.total += more;
    }

    /// Begins the next step.
    pub(super) fn next(&mut self, what: String) {
        (self.progress)(Progress {
            done: self.done,
            total: self.total,
            what,
        });
        self.done += 1;
    }
}

/// What all ranks have in common.
pub(super) struct Common {
    pub capabilities: Capabilities,
    /// Bytes of the largest transfer.
    pub limit: u64,
    /// The device of each rank.
    pub devices: Vec<String>,
}

/// What a rank tells of itself before the run.
#[derive(Serialize, Deserialize)]
struct Own {
    flags: u64,
    shared_memory: u32,
    limit: u64,
    device: String,
}

impl Common {
    /// Collective. Transfers may take a quarter of the memory that is free, shared by the ranks of a
    /// device.
    pub(super) fn agree(communicator: &Communicator) -> Result<Self> {
        let mut capabilities = *communicator.capabilities();
        let peers = communicator.peers();
        let sharing = peers.iter().filter(|peer| peer.same_device).count().max(1);
        let all = exchange::all_gather(
            communicator,
            &Own {
                flags: capabilities.flags,
                shared_memory: capabilities.shared_memory_per_block,
                limit: communicator.memory_information()?.free / 4 / sharing as u64,
                device: read_text(&communicator.device().name),
            },
        )?;
        let mut limit = u64::MAX;
        for own in &all {
            capabilities.flags &= own.flags;
            capabilities.shared_memory_per_block =
                capabilities.shared_memory_per_block.min(own.shared_memory);
            limit = limit.min(own.limit);
        }
        Ok(Self {
            capabilities,
            limit,
            devices: all.into_iter().map(|own| own.device).collect(),
        })
    }
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

/// A run that is under way at one rank.
pub(super) struct Run<'a> {
    pub session: Session<'a>,
    pub capabilities: Capabilities,
    pub effort: Effort,
    pub by_caller: bool,
    /// Whether the ranks that pair up have a baseline.
    pub has_baseline: bool,
    pub baseline: Option<Baseline>,
}

impl Run<'_> {
    /// Nanoseconds for all rounds of a point.
    pub(super) fn budget(&self) -> f64 {
        if self.by_caller {
            POINT_NS_ON_HOST
        } else {
            POINT_NS
        }
    }

    /// Rounds of a point whose slowest column takes `each_ns` for a transfer.
    pub(super) fn rounds(&self, each_ns: f64) -> u32 {
        let wanted = self.effort.rounds();
        match self.by_caller {
            true => fewer_rounds(wanted, each_ns, self.budget()),
            false => wanted,
        }
    }

    /// For each candidate the time of a transfer, of the slowest rank that moves. Collective.
    pub(super) fn search(&self, case: &Case, candidates: &[Candidate]) -> Result<Vec<f64>> {
        let count = match case.bytes >> 20 {
            _ if self.effort == Effort::Quick => 1,
            0..=1 => 8,
            2..=8 => 4,
            _ => 1,
        };
        let mut times = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            self.session.warm_up(case, candidate.means, 1)?;
            let first = self.session.looped(case, candidate.means, count)?;
            let second = self.session.looped(case, candidate.means, count)?;
            times.push(if case.role.moves {
                first.min(second)
            } else {
                0.0
            });
        }
        let all = exchange::all_gather(self.session.communicator, &times)?;
        let slowest = |index: usize| {
            let times = all.iter().filter_map(|times| times.get(index));
            times.copied().fold(0.0, f64::max)
        };
        Ok((0..candidates.len()).map(slowest).collect())
    }
}
