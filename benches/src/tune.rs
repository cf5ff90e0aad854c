//! Measures the selector's table for this machine: the fastest algorithm and grid per operation and size.
//!
//! At each size, every candidate gets a short trial, replayed from a graph as serving programs do. The best
//! few, and the choice of the previous size, are checked for correct results and then take turns in rounds;
//! the result is the median over rounds of the slowest rank's time. The choice of the previous size stays
//! unless another one is faster by more than the noise, which keeps the table short.
//!
//! If NCCL or RCCL is found, it is a candidate too, without windows, and is chosen if it is faster than all of
//! symmem's algorithms by more than the noise. Multicast kernels are candidates if the machine has multicast.
//! After such a choice, the table lists the fastest algorithm without it, for programs that do not open the
//! library and for buffers that multicast does not reach.

mod candidates;

use super::by_caller::is_by_caller;
use super::collectives::call::{Call, Work};
use super::collectives::how::CallChoice;
use super::collectives::session::{ResolvedAlgorithm, Session};
use super::collectives::shape::Shape;
use super::collectives::{self};
use super::common::SharedLimits;
use super::outcome::no_vendor_here;
use super::progress::Progress;
use super::{BenchError, Result, exchange};
use crate::report::{Collective, Placement, Time};
use candidates::{Candidate, Features, candidates};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use symmem::backend::abi::CollectiveRow;
use symmem::tuning::Row;
use symmem::{Algorithm, Communicator, Error, MulticastSupport, Provider};

pub use symmem::tuning::Table;

/// Options of [`run`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Operations, sizes, element type and rounds.
    pub which: collectives::Options,
    /// File for the table.
    pub out: PathBuf,
    /// Whether to print the table as Rust code.
    pub rust: bool,
}

/// Number of candidates that take part in the rounds.
const FINALISTS: usize = 4;
/// A choice stays from one size to the next unless another is faster by this factor.
const NOISE: f64 = 1.02;
/// Maximum number of calls in a graph, and time budget for its replays in one round.
const CALLS: f64 = 20.0;
const ROUND_NS: f64 = 3e6;
/// Time budget of the trial.
const TRIAL_NS: f64 = 1e6;
/// A candidate whose first calls take longer than the best by this factor is dropped.
const HOPELESS: f64 = 3.0;

/// The choice for one size.
#[derive(Clone, Debug, PartialEq)]
struct Choice {
    bytes: u64,
    /// The fastest candidate, then the fastest of those that work where the previous ones do not ([`needed`]).
    candidates: Vec<Candidate>,
}

/// Measures a tuning table. Collective; blocks. Every rank gets the whole table.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks or an unsupported element type; any error of the backend, of
/// NCCL or RCCL, or of a peer. A missing NCCL or RCCL is not an error.
pub fn run(
    communicator: &Communicator,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Table> {
    let rank = communicator.rank();
    if communicator.world_size() < 2 {
        let message = "tuning needs 2 ranks or more; ask for them with --ranks 2".into();
        return Err(BenchError::World { rank, message });
    }
    tune(communicator, &options.which, progress)
}

fn tune(
    communicator: &Communicator,
    options: &collectives::Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Table> {
    let common = SharedLimits::agree(communicator)?;
    let sizes = options.sizes(communicator.rank(), common.limit)?;
    let largest = sizes.last().copied().unwrap_or_default();
    let session = Session::new(communicator, options.element(communicator), largest)?;
    let has_switch = communicator.multicast().support == MulticastSupport::Hardware;
    let run = Run {
        rounds: options.rounds.unwrap_or(options.effort.rounds()).max(1),
        by_caller: is_by_caller(communicator),
        present: Features {
            vendor: no_vendor_here(communicator.open_nccl(false).map_err(Into::into))?.is_ok(),
            multicast: has_switch && session.is_in_multicast(),
            lamport: !is_by_caller(communicator),
        },
        session,
    };
    if has_switch && !run.present.multicast {
        tracing::warn!(
            "multicast is not tried: its object has no room for buffers of {largest} bytes"
        );
    }
    let total = options.collectives.len() * sizes.len();
    let mut done = 0;
    let mut table = Table {
        device: common.devices.first().cloned().unwrap_or_default(),
        ..Table::default()
    };
    for &collective in &options.collectives {
        let mut choices: Vec<Choice> = Vec::new();
        for &bytes in &sizes {
            let what = format!("{} {} KiB", collective.name(), bytes >> 10);
            progress(Progress { done, total, what });
            done += 1;
            let before = choices
                .last()
                .and_then(|choice| choice.candidates.first().copied());
            choices.extend(run.choose(collective, bytes, before)?);
        }
        table
            .rows
            .extend(rows(collective, communicator.world_size() as u32, &choices));
    }
    run.session.finish()?;
    Ok(table)
}

struct Run<'a> {
    session: Session<'a>,
    rounds: u32,
    by_caller: bool,
    /// For every operation and element type; see [`Features::of`].
    present: Features,
}

impl Run<'_> {
    /// Returns the choice for a size; `None` if the size is too small for the world. Collective.
    fn choose(
        &self,
        collective: Collective,
        bytes: u64,
        before: Option<Candidate>,
    ) -> Result<Option<Choice>> {
        let world = self.session.communicator.world_size();
        let Some(shape) = Shape::new(collective, bytes, self.session.element.size, world) else {
            return Ok(None);
        };
        let present = self.present.of(collective, self.session.element.kind);
        let mut tried: Vec<(Candidate, f64)> = Vec::new();
        for candidate in candidates(collective, bytes, self.by_caller, present) {
            let call = call(shape, candidate, placement(&candidate));
            let (algorithm, grid) = (candidate.algorithm.name(), candidate.grid);
            if !self.goes(&call)? {
                tracing::debug!(algorithm, ?grid, bytes, "another algorithm would be used");
                continue;
            }
            let candidate = self.with_grid(candidate, &call)?;
            let limit = HOPELESS * least_to_beat(&candidate, &tried, present);
            if let Some(ns) = self.time(&call, TRIAL_NS, limit)? {
                tracing::debug!(algorithm, ?grid, bytes, ns, "tried");
                tried.push((candidate, ns));
            } else {
                tracing::debug!(algorithm, ?grid, bytes, "not supported, or much slower");
            }
        }
        tried.sort_by(|a, b| a.1.total_cmp(&b.1));
        let in_place = |candidate: &Candidate| self.is_right(shape, *candidate, Placement::InPlace);
        let all: Vec<Candidate> = tried.iter().map(|&(candidate, _)| candidate).collect();
        let apart = all
            .iter()
            .filter(|one| placement(one) == Placement::OutOfPlace);
        let mut finalists: Vec<Candidate> = apart.take(FINALISTS).copied().collect();
        // Also the previous size's choice, and something for each placement that works without multicast, NCCL
        // and RCCL.
        let known = before.filter(|before| all.contains(before));
        for candidate in known.into_iter().chain(needed(all, present, in_place)?) {
            if !finalists.contains(&candidate) {
                finalists.push(candidate);
            }
        }
        let finalists = self.right(shape, finalists)?;
        let times = self.measure(shape, &finalists)?;
        let candidates = needed(ranked(&finalists, &times, before), present, in_place)?;
        if let Some(best) = candidates.first() {
            let (collective, algorithm) = (collective.name(), best.algorithm.name());
            tracing::info!(collective, bytes, algorithm, grid = ?best.grid, "chosen");
        }
        Ok((!candidates.is_empty()).then_some(Choice {
            bytes: (shape.whole * self.session.element.size) as u64,
            candidates,
        }))
    }

    /// Whether a call uses the algorithm that it names; the same on all ranks. Multicast and push do not support every
    /// reduction, and their replacements are candidates themselves.
    fn goes(&self, call: &Call) -> Result<bool> {
        Ok(call.how.provider == Provider::Nccl
            || matches!(self.session.resolved(call)?, ResolvedAlgorithm::AsNamed(_)))
    }

    /// Returns the candidate with the grid that the selector gives its kernel, if it is by copy engines and has one. A row
    /// without it would be another choice than the one that is timed.
    fn with_grid(&self, candidate: Candidate, call: &Call) -> Result<Candidate> {
        if candidate.algorithm != Algorithm::CopyEngine {
            return Ok(candidate);
        }
        let grid = match self.session.resolved(call)? {
            ResolvedAlgorithm::AsNamed(explanation) => {
                let choice = explanation.choice().filter(|choice| choice.blocks > 0);
                choice.map(|choice| (choice.blocks, choice.threads))
            }
            _ => None,
        };
        Ok(Candidate { grid, ..candidate })
    }

    /// Returns nanoseconds per call of the slowest rank, measured for about `budget` nanoseconds; `None` if the
    /// call is not supported, or its first runs take longer than `limit`. Collective.
    fn time(&self, call: &Call, budget: f64, limit: f64) -> Result<Option<f64>> {
        let communicator = self.session.communicator;
        // All ranks refuse an unsupported call alike, before they enqueue anything.
        let Some(first) = possible(self.session.looped(Work::Call(call), 1))? else {
            return Ok(None);
        };
        let second = self.session.looped(Work::Call(call), 2)?;
        let each = exchange::all_gather(communicator, &first.min(second))?;
        let each = each.into_iter().fold(1.0, f64::max);
        if each > limit {
            return Ok(None);
        }
        let calls = (budget / each).clamp(1.0, CALLS) as u32;
        let ns = match self.by_caller {
            true => self.session.looped(Work::Call(call), calls)?,
            false => {
                let launches = (budget / each / CALLS).clamp(1.0, 5.0) as u32;
                let graph = self.session.graph(Work::Call(call), calls)?;
                self.session.replayed(&graph, calls, launches)?
            }
        };
        let all = exchange::all_gather(communicator, &ns)?;
        Ok(Some(all.into_iter().fold(0.0, f64::max)))
    }

    /// Returns the candidates with correct results. Collective.
    fn right(&self, shape: Shape, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
        let mut right = Vec::new();
        for candidate in candidates {
            if self.is_right(shape, candidate, placement(&candidate))? {
                right.push(candidate);
            }
        }
        Ok(right)
    }

    /// Whether a candidate's results are correct on every rank; false if the call is not supported. Any other failure
    /// is an error. Collective.
    fn is_right(&self, shape: Shape, candidate: Candidate, placement: Placement) -> Result<bool> {
        let call = call(shape, candidate, placement);
        if !shape.has(placement) || !self.goes(&call)? {
            return Ok(false);
        }
        // All ranks refuse an unsupported call alike.
        let Some((wrong, _)) = possible(self.session.check(&call))? else {
            return Ok(false);
        };
        let all = exchange::all_gather(self.session.communicator, &wrong)?;
        let wrong: u64 = all.into_iter().sum();
        if wrong != 0 {
            let (collective, placement) = (shape.collective.name(), placement.label());
            tracing::error!(
                "{wrong} elements of {collective} {placement} by {candidate:?} were wrong; it is left out"
            );
        }
        Ok(wrong == 0)
    }

    /// Returns the median time of each candidate over rounds in which they take turns. Collective.
    fn measure(&self, shape: Shape, candidates: &[Candidate]) -> Result<Vec<f64>> {
        let mut times = vec![Vec::new(); candidates.len()];
        for _ in 0..self.rounds {
            for (candidate, times) in candidates.iter().zip(&mut times) {
                let call = call(shape, *candidate, placement(candidate));
                times.extend(self.time(&call, ROUND_NS, f64::INFINITY)?);
            }
        }
        let median = |times: &Vec<f64>| Time::from_rounds(times).map_or(f64::INFINITY, |t| t.ns);
        Ok(times.iter().map(median).collect())
    }
}

/// Returns the placement in which a candidate is measured: out of place, unless it supports in-place calls only.
fn placement(candidate: &Candidate) -> Placement {
    match candidate.algorithm {
        Algorithm::Swap => Placement::InPlace,
        _ => Placement::OutOfPlace,
    }
}

fn call(shape: Shape, candidate: Candidate, placement: Placement) -> Call {
    let how = CallChoice {
        algorithm: Some(candidate.algorithm),
        grid: candidate.grid,
        concurrent: Some(candidate.concurrent),
        provider: match candidate.is_nccl() {
            true => Provider::Nccl,
            false => Provider::Symmem,
        },
        own_memory: false,
        plain: false,
    };
    Call::new(shape, placement, how)
}

/// Turns an unsupported call or an invalid argument into `None`; other errors remain errors.
fn possible<V>(result: Result<V>) -> Result<Option<V>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(BenchError::Symmem(Error::Unsupported { .. } | Error::InvalidArgument { .. })) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Orders candidates by time, but puts the choice of the previous size before candidates that are not faster by
/// more than the noise. Within the noise, symmem's algorithms come before NCCL or RCCL, since they need no library.
fn ranked(candidates: &[Candidate], times: &[f64], before: Option<Candidate>) -> Vec<Candidate> {
    let weighed = |index: usize| match candidates[index].is_nccl() {
        true => times[index] * NOISE,
        false => times[index],
    };
    let fastest = (0..candidates.len())
        .map(weighed)
        .fold(f64::INFINITY, f64::min);
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| {
        let stays =
            |index: usize| Some(candidates[index]) == before && weighed(index) <= fastest * NOISE;
        (stays(b).cmp(&stays(a))).then(weighed(a).total_cmp(&weighed(b)))
    });
    order.into_iter().map(|index| candidates[index]).collect()
}

/// Returns the least time among candidates that work wherever `candidate` does, in the set of features for which that is
/// largest: something slow may be all that works with few features.
fn least_to_beat(candidate: &Candidate, tried: &[(Candidate, f64)], present: Features) -> f64 {
    let served = (present.or_less()).filter(|&features| candidate.serves_with(features));
    let least = |features| {
        let beside = tried.iter().filter(|(one, _)| one.serves_with(features));
        beside.fold(f64::INFINITY, |least, &(_, ns)| least.min(ns))
    };
    served.map(least).fold(0.0, f64::max)
}

/// Returns the candidates that a table needs, given candidates ordered by time: each works for a call for which no
/// earlier one does, in place or with fewer features than are `present`.
fn needed(
    ranked: Vec<Candidate>,
    present: Features,
    in_place: impl Fn(&Candidate) -> Result<bool>,
) -> Result<Vec<Candidate>> {
    // Feature sets that no candidate covers yet, out of place and in place.
    let mut unserved = [(); 2].map(|()| present.or_less().collect::<Vec<_>>());
    let mut needed = Vec::new();
    for candidate in ranked {
        let mut serves = false;
        for (place, unserved) in unserved.iter_mut().enumerate() {
            let is_new = (unserved.iter()).any(|&present| candidate.serves_with(present));
            let fits = || match place {
                0 => Ok(placement(&candidate) == Placement::OutOfPlace),
                _ => in_place(&candidate),
            };
            if is_new && fits()? {
                unserved.retain(|&present| !candidate.serves_with(present));
                serves = true;
            }
        }
        needed.extend(serves.then_some(candidate));
    }
    Ok(needed)
}

/// Returns the rows of an operation. Neighboring sizes with the same choice share a row, and the last row
/// holds for all larger sizes.
fn rows(collective: Collective, world: u32, choices: &[Choice]) -> Vec<Row> {
    let mut rows = Vec::new();
    let same = |a: &Choice, b: &Choice| a.candidates == b.candidates;
    let mut runs = choices.chunk_by(same).peekable();
    while let Some(run) = runs.next() {
        let last = &run[run.len() - 1];
        let bytes = match runs.peek() {
            Some(_) => last.bytes,
            None => u64::MAX,
        };
        for candidate in &last.candidates {
            let (blocks, threads) = candidate.grid.unwrap_or_default();
            rows.push(Row {
                operation: collective.name().into(),
                world,
                bytes,
                algorithm: Row::new(&CollectiveRow {
                    algorithm: candidate.algorithm.into(),
                    ..CollectiveRow::default()
                })
                .algorithm,
                blocks,
                threads,
                concurrent: candidate.concurrent,
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests;
