//! Which algorithm and grid is fastest for each operation and size, here: the selector's table.
//!
//! At each size every candidate is tried shortly, replayed from a graph as serving programs do it. The
//! best few, and the choice of the size before, are checked for right results and then take turns for
//! as many rounds as a benchmark has; the slowest rank counts, and of the rounds the median. The choice
//! of the size before stays unless another is faster by more than the noise, so that a table is short.

use super::collectives::element::{Sample, with_element};
use super::collectives::session::{Call, Session};
use super::collectives::shape::Shape;
use super::collectives::{self};
use super::p2p::{Common, Progress};
use super::session::is_by_caller;
use super::{BenchError, Result, exchange};
use crate::report::{Collective, Placement, Time};
use crate::tuning::Row;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use symmem_core::backend::abi::{Algorithm, CollectiveRow, PACKET_BLOCKS, SLOT_BLOCKS};
use symmem_core::{CollectiveOptions, Communicator, Error, Provider};

pub use crate::tuning::Table;

/// What to tune.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Operations, sizes, elements, rounds.
    pub which: collectives::Options,
    /// Where the table goes.
    pub out: PathBuf,
    /// Print the table as Rust.
    pub rust: bool,
}

/// How many of the candidates take part in the rounds.
const FINALISTS: usize = 4;
/// A choice stays from one size to the next unless another is so many times faster.
const NOISE: f64 = 1.02;
/// Calls of a graph, and time for its replays in one round.
const CALLS: f64 = 20.0;
const ROUND_NS: f64 = 3e6;
/// Of the short trial.
const TRIAL_NS: f64 = 1e6;

/// Bytes below which copies are tried all at once only.
const LEAST_IN_STEP: u64 = 256 << 10;

/// One way to do an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    algorithm: Algorithm,
    /// Blocks and threads; `None` where no grid is chosen.
    grid: Option<(u32, u32)>,
    /// Copies under way at once; 0 for as many as there are.
    concurrent: u32,
}

/// The fastest way at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    bytes: u64,
    best: Candidate,
    /// The fastest that also works in place, where the best does not.
    in_place: Option<Candidate>,
}

/// Measures. Collective; every rank gets the whole table.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks or an element type that cannot be measured; what the
/// backend or a peer failed with.
pub fn run(
    communicator: &Communicator,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Table> {
    let rank = communicator.rank();
    let impossible = |message: String| Err(BenchError::World { rank, message });
    if communicator.world() < 2 {
        return impossible("tuning needs 2 ranks or more; ask for them with --ranks 2".into());
    }
    let element = options.which.element(communicator);
    with_element!(element, T => {
        tune::<T>(communicator, &options.which, progress)
    }, else {
        impossible(format!("elements of type {element} cannot be measured"))
    })
}

fn tune<T: Sample>(
    communicator: &Communicator,
    options: &collectives::Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Table> {
    let common = Common::agree(communicator)?;
    let sizes = options.sizes(common.limit);
    let largest = sizes.last().copied().unwrap_or_default();
    let run = Run::<T> {
        session: Session::new(communicator, largest)?,
        rounds: options.rounds.unwrap_or(options.effort.rounds()).max(1),
        by_caller: is_by_caller(communicator),
    };
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
            let before = choices.last().map(|choice| choice.best);
            choices.extend(run.choose(collective, bytes, before)?);
        }
        table
            .rows
            .extend(rows(collective, communicator.world() as u32, &choices));
    }
    run.session.finish()?;
    Ok(table)
}

struct Run<'a, T: Sample> {
    session: Session<'a, T>,
    rounds: u32,
    by_caller: bool,
}

impl<T: Sample> Run<'_, T> {
    /// The fastest way at a size; `None` if the size is too small for the world. Collective.
    fn choose(
        &self,
        collective: Collective,
        bytes: u64,
        before: Option<Candidate>,
    ) -> Result<Option<Choice>> {
        let world = self.session.communicator.world();
        let Some(shape) = Shape::new(collective, bytes, size_of::<T>(), world) else {
            return Ok(None);
        };
        let mut tried = Vec::new();
        for candidate in candidates(collective, bytes, self.by_caller) {
            let call = call(shape, candidate, Placement::OutOfPlace);
            if let Some(ns) = self.time(&call, TRIAL_NS)? {
                tried.push((candidate, ns));
            }
        }
        tried.sort_by(|a, b| a.1.total_cmp(&b.1));
        let in_place = |candidate: &Candidate| {
            shape.has(Placement::InPlace)
                && possible(
                    self.session
                        .check(&call(shape, *candidate, Placement::InPlace)),
                )
                .is_ok_and(|outcome| outcome.is_some())
        };
        let mut finalists: Vec<Candidate> = Vec::new();
        for (candidate, _) in tried.iter().take(FINALISTS) {
            finalists.push(*candidate);
        }
        // The size before may have been right for both; and something has to work in place.
        let known = |candidate: &Candidate| tried.iter().any(|(tried, _)| tried == candidate);
        let also = before.filter(known);
        let works = (tried.iter().map(|(candidate, _)| *candidate)).find(in_place);
        for candidate in also.into_iter().chain(works) {
            if !finalists.contains(&candidate) {
                finalists.push(candidate);
            }
        }
        let finalists = self.right(shape, finalists)?;
        let times = self.measure(shape, &finalists)?;
        let ranked = ranked(&finalists, &times, before);
        let Some(&best) = ranked.first() else {
            return Ok(None);
        };
        Ok(Some(Choice {
            bytes: (shape.whole * size_of::<T>()) as u64,
            best,
            in_place: match in_place(&best) {
                true => None,
                false => ranked.into_iter().find(in_place),
            },
        }))
    }

    /// Nanoseconds of a call by the slowest rank, in about `budget` of them; `None` if it cannot be
    /// made so. Collective.
    fn time(&self, call: &Call<'_>, budget: f64) -> Result<Option<f64>> {
        let communicator = self.session.communicator;
        // What cannot be done is refused alike on all ranks, before anything is enqueued.
        let Some(first) = possible(self.session.looped(self.session.calls(call), 1))? else {
            return Ok(None);
        };
        let second = self.session.looped(self.session.calls(call), 2)?;
        let each = exchange::all_gather(communicator, &first.min(second))?;
        let each = each.into_iter().fold(1.0, f64::max);
        let calls = (budget / each).clamp(1.0, CALLS) as u32;
        let ns = match self.by_caller {
            true => self.session.looped(self.session.calls(call), calls)?,
            false => {
                let launches = (budget / each / CALLS).clamp(1.0, 5.0) as u32;
                let graph = self.session.graph(self.session.calls(call), calls)?;
                self.session.replayed(&graph, calls, 1)?;
                self.session.replayed(&graph, calls, launches)?
            }
        };
        let all = exchange::all_gather(communicator, &ns)?;
        Ok(Some(all.into_iter().fold(0.0, f64::max)))
    }

    /// Those whose results are right. Collective.
    fn right(&self, shape: Shape, candidates: Vec<Candidate>) -> Result<Vec<Candidate>> {
        let mut right = Vec::new();
        for candidate in candidates {
            let (wrong, _) = self
                .session
                .check(&call(shape, candidate, Placement::OutOfPlace))?;
            let all = exchange::all_gather(self.session.communicator, &wrong)?;
            match all.into_iter().sum::<u64>() {
                0 => right.push(candidate),
                wrong => tracing::error!(
                    "{wrong} elements of {} by {candidate:?} were wrong; it is left out",
                    shape.collective.name()
                ),
            }
        }
        Ok(right)
    }

    /// The median time of each, in rounds in which they take turns. Collective.
    fn measure(&self, shape: Shape, candidates: &[Candidate]) -> Result<Vec<f64>> {
        let mut times = vec![Vec::new(); candidates.len()];
        for _ in 0..self.rounds {
            for (candidate, times) in candidates.iter().zip(&mut times) {
                let call = call(shape, *candidate, Placement::OutOfPlace);
                times.extend(self.time(&call, ROUND_NS)?);
            }
        }
        let median = |times: &Vec<f64>| Time::from_rounds(times).map_or(f64::INFINITY, |t| t.ns);
        Ok(times.iter().map(median).collect())
    }
}

fn call(shape: Shape, candidate: Candidate, placement: Placement) -> Call<'static> {
    Call {
        shape,
        placement,
        options: CollectiveOptions {
            algorithm: candidate.algorithm,
            blocks: candidate.grid.map(|(blocks, _)| blocks),
            threads: candidate.grid.map(|(_, threads)| threads),
            concurrent: Some(candidate.concurrent),
            provider: Provider::Own,
            ..CollectiveOptions::default()
        },
    }
}

/// `None` for a call that is refused because it cannot be done so.
fn possible<V>(result: Result<V>) -> Result<Option<V>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(BenchError::Symmem(Error::Unsupported { .. } | Error::InvalidArgument { .. })) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Fastest first; the choice of the size before in front of all that are not faster beyond noise.
fn ranked(candidates: &[Candidate], times: &[f64], before: Option<Candidate>) -> Vec<Candidate> {
    let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| {
        let stays =
            |index: usize| Some(candidates[index]) == before && times[index] <= fastest * NOISE;
        (stays(b).cmp(&stays(a))).then(times[a].total_cmp(&times[b]))
    });
    order.into_iter().map(|index| candidates[index]).collect()
}

/// The algorithms that an operation may have, and the sizes up to which each is worth a trial: packets
/// move twice the bytes, and one shot of an all-reduce moves everything to everybody.
fn algorithms(collective: Collective) -> &'static [(Algorithm, u64)] {
    const MIB: u64 = 1 << 20;
    const ANY: u64 = u64::MAX;
    const PACKETS: (Algorithm, u64) = (Algorithm::PACKETS, 4 * MIB);
    match collective {
        Collective::AllReduce => &[
            PACKETS,
            (Algorithm::PACKETS_TWO_SHOT, 16 * MIB),
            (Algorithm::ONE_SHOT, 16 * MIB),
            (Algorithm::TWO_SHOT, ANY),
            (Algorithm::PUSH, ANY),
            (Algorithm::COPY_ENGINE, ANY),
        ],
        Collective::Reduce => &[
            PACKETS,
            (Algorithm::ONE_SHOT, ANY),
            (Algorithm::TWO_SHOT, ANY),
        ],
        Collective::ReduceScatter => &[PACKETS, (Algorithm::ONE_SHOT, ANY), (Algorithm::PUSH, ANY)],
        Collective::AllGather | Collective::AllToAll => &[
            PACKETS,
            (Algorithm::PUSH, ANY),
            (Algorithm::PULL, ANY),
            (Algorithm::COPY_ENGINE, ANY),
        ],
        Collective::Broadcast => &[
            PACKETS,
            (Algorithm::PUSH, ANY),
            (Algorithm::PULL, ANY),
            (Algorithm::TWO_SHOT, ANY),
        ],
        Collective::Gather | Collective::Scatter => {
            &[PACKETS, (Algorithm::PUSH, ANY), (Algorithm::PULL, ANY)]
        }
    }
}

/// Everything that is tried at a size.
fn candidates(collective: Collective, bytes: u64, by_caller: bool) -> Vec<Candidate> {
    // With a block for each 256 bytes a warp has one access to make: more would idle. And 64 MiB by
    // fewer than 16 blocks takes longer than all other trials together.
    let least = match bytes >> 20 {
        0..4 => 1,
        4..64 => 8,
        _ => 16,
    };
    let most = (bytes >> 8).clamp(1, u64::from(SLOT_BLOCKS)) as u32;
    let mut all = Vec::new();
    for &(algorithm, limit) in algorithms(collective) {
        if bytes > limit {
            continue;
        }
        if by_caller || algorithm == Algorithm::COPY_ENGINE {
            all.push(Candidate {
                algorithm,
                grid: None,
                concurrent: 0,
            });
            continue;
        }
        let in_packets = matches!(algorithm, Algorithm::PACKETS | Algorithm::PACKETS_TWO_SHOT);
        let most = if in_packets {
            most.min(PACKET_BLOCKS)
        } else {
            most
        };
        for blocks in [1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128] {
            if blocks < least.min(most) || blocks > most {
                continue;
            }
            // Only copies can be one after the other, and small ones are over before that matters.
            let reduces = matches!(
                collective,
                Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter
            );
            let copies = !reduces && matches!(algorithm, Algorithm::PUSH | Algorithm::PULL);
            let concurrents: &[u32] = if copies && bytes >= LEAST_IN_STEP {
                &[0, 1, 2]
            } else {
                &[0]
            };
            for threads in [256, 512, 1024] {
                all.extend(concurrents.iter().map(|&concurrent| Candidate {
                    algorithm,
                    grid: Some((blocks, threads)),
                    concurrent,
                }));
            }
        }
    }
    all
}

/// The rows of an operation: neighbouring sizes with the same choice are one, and the last row holds
/// for all larger sizes.
fn rows(collective: Collective, world: u32, choices: &[Choice]) -> Vec<Row> {
    let mut rows = Vec::new();
    let same = |a: &Choice, b: &Choice| (a.best, a.in_place) == (b.best, b.in_place);
    let mut runs = choices.chunk_by(same).peekable();
    while let Some(run) = runs.next() {
        let last = &run[run.len() - 1];
        let bytes = match runs.peek() {
            Some(_) => last.bytes,
            None => u64::MAX,
        };
        for candidate in std::iter::once(last.best).chain(last.in_place) {
            let (blocks, threads) = candidate.grid.unwrap_or_default();
            rows.push(Row {
                operation: collective.name().into(),
                world,
                bytes,
                algorithm: Row::new(&CollectiveRow {
                    algorithm: candidate.algorithm,
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
mod tests {
    use super::*;

    fn candidate(algorithm: Algorithm, blocks: u32) -> Candidate {
        Candidate {
            algorithm,
            grid: Some((blocks, 512)),
            concurrent: 0,
        }
    }

    #[test]
    fn neighbouring_sizes_with_one_choice_are_one_row_and_the_last_holds_beyond() {
        let packets = candidate(Algorithm::PACKETS, 8);
        let two_shot = candidate(Algorithm::TWO_SHOT, 32);
        let one_shot = candidate(Algorithm::ONE_SHOT, 8);
        let choice = |bytes, best, in_place| Choice {
            bytes,
            best,
            in_place,
        };
        let rows = rows(
            Collective::AllReduce,
            8,
            &[
                choice(1024, packets, None),
                choice(2048, packets, None),
                choice(4096, one_shot, Some(packets)),
                choice(8192, two_shot, None),
            ],
        );
        let short: Vec<(u64, &str, u32)> = (rows.iter())
            .map(|row| (row.bytes, row.algorithm.as_str(), row.blocks))
            .collect();
        assert_eq!(
            short,
            [
                (2048, "packets", 8),
                (4096, "one_shot", 8),
                (4096, "packets", 8),
                (u64::MAX, "two_shot", 32)
            ]
        );
        assert!(
            rows.iter()
                .all(|row| row.operation == "all_reduce" && row.world == 8)
        );
    }

    #[test]
    fn the_choice_before_stays_within_noise_and_goes_beyond() {
        let all = [1, 2, 4].map(|blocks| candidate(Algorithm::PUSH, blocks));
        let first = |times: &[f64], before| ranked(&all, times, before)[0];
        assert_eq!(first(&[3.0, 1.0, 2.0], None), all[1]);
        assert_eq!(first(&[1.01, 1.0, 2.0], Some(all[0])), all[0]);
        assert_eq!(first(&[1.03, 1.0, 2.0], Some(all[0])), all[1]);
        assert_eq!(ranked(&[], &[], None), []);
    }

    #[test]
    fn every_operation_has_candidates_at_every_size_and_packets_few_blocks() {
        for collective in Collective::ALL {
            for shift in [3, 10, 16, 20, 24, 30] {
                for by_caller in [true, false] {
                    let all = candidates(collective, 1 << shift, by_caller);
                    assert!(!all.is_empty(), "{collective:?} {shift}");
                    for one in all.iter().filter(|one| one.algorithm == Algorithm::PACKETS) {
                        let blocks = one.grid.map_or(1, |(blocks, _)| blocks);
                        assert!(blocks <= PACKET_BLOCKS);
                    }
                }
            }
        }
    }
}
