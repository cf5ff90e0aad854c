//! Measures all columns at one size: check, timed rounds, and collection of the ranks' results.

use super::baseline;
use super::candidates::{Candidate, between_nodes, candidates, choose};
use super::pairs::Run;
use super::perftest::Test;
use super::session::{Case, TransferMethod};
use super::sizes::samples;
use super::{BenchError, Result, exchange};
use crate::report::{Column, Direction, Point, SingleShot, Timing, Traffic};
use serde::{Deserialize, Serialize};
use symmem::Graph;

/// Untimed transfers before each round, as in published tables.
const WARM_UPS: u32 = 10;

/// A column during the measurement.
struct Series<'a> {
    column: Column,
    candidate: &'a Candidate,
    each_ns: f64,
    repeats: u32,
    graph: Option<Graph>,
    measured: Measured,
}

/// One rank's measurements of one column.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Measured {
    looped: Vec<f64>,
    graph: Vec<f64>,
    single: Vec<f64>,
    wrong: u64,
}

impl Run<'_> {
    /// Measures every column at one size. Collective.
    pub(super) fn points(
        &mut self,
        traffic: Traffic,
        direction: Direction,
        bytes: u64,
    ) -> Result<Vec<Point>> {
        let communicator = self.session.communicator;
        let rank = communicator.rank();
        let case = Case {
            direction,
            bytes: bytes as usize,
            role: self.pairing.role(rank, direction, traffic),
        };
        let candidates = match self.across {
            true => between_nodes(),
            false => candidates(&self.capabilities, direction, bytes, self.by_caller),
        };
        let times = self.search(&case, &candidates)?;
        let chosen = choose(&candidates, &times);
        let slowest = chosen.iter().map(|&(_, index)| times[index]);
        let rounds = self.rounds(slowest.fold(0.0, f64::max));
        let mut series = Vec::new();
        for (column, index) in chosen {
            series.push(self.prepare(&case, column, &candidates[index], times[index], rounds)?);
        }
        let (mut nvshmem, mut ucx) = (Measured::default(), Measured::default());
        let mut tests = vec![Test::Bandwidth, Test::InTurn];
        let beside = self.has_baseline && bytes <= baseline::LARGEST;
        for _ in 0..rounds {
            for one in &mut series {
                let means = one.candidate.means;
                let warm_ups = WARM_UPS.min(one.repeats);
                self.session.warm_up(&case, means, warm_ups)?;
                let ns = self.session.looped(&case, means, one.repeats)?;
                one.measured.looped.push(ns);
            }
            if beside {
                // The barriers keep the baseline's kernels and symmem's from running at the same time.
                communicator.host_barrier()?;
                if let Some(baseline) = &mut self.baseline {
                    let (ns, wrong) = baseline.measure(direction, bytes, traffic)?;
                    nvshmem.looped.push(ns);
                    nvshmem.wrong += wrong;
                }
                communicator.host_barrier()?;
            }
            // Its server is at the lower rank of the first pair, so the bytes go against ours; the wire is the same.
            if (direction, traffic) == (Direction::Push, Traffic::OneWay) {
                let mut times = Vec::new();
                for test in &tests {
                    times.push((self.beside(*test, bytes)?.unwrap_or(f64::MAX), *test));
                }
                // The faster is the baseline, and the other one is left out of the next rounds.
                let fastest = times
                    .into_iter()
                    .min_by(|one, other| one.0.total_cmp(&other.0));
                if let Some((ns, test)) = fastest {
                    tests = vec![test];
                    ucx.looped.extend((ns < f64::MAX).then_some(ns));
                }
            }
        }
        for one in &mut series {
            self.replay_and_single(&case, one, rounds)?;
        }
        let mut own: Vec<Measured> = series.iter().map(|one| one.measured.clone()).collect();
        if beside {
            own.push(nvshmem);
        }
        let all = exchange::all_gather(communicator, &own)?;
        let mut points = Vec::new();
        for (number, (lower, upper)) in self.pairing.pairs().enumerate() {
            let movers = match traffic {
                Traffic::BothWays => vec![lower, upper],
                Traffic::OneWay => vec![lower],
            };
            let point = |index: usize, column: Column, method: String| -> Result<Point> {
                let of = |rank: usize| all[rank].get(index).cloned().unwrap_or_default();
                let movers: Vec<Measured> = movers.iter().map(|&rank| of(rank)).collect();
                let looped = Timing::from_rounds(bytes, &slower(&movers, |m| &m.looped));
                Ok(Point {
                    direction,
                    traffic,
                    rank: lower as u32,
                    peer: upper as u32,
                    bytes,
                    column,
                    method,
                    blocks: 1,
                    threads: 128,
                    bytes_in_flight: 0,
                    looped: looped.ok_or_else(|| no_time(rank, column, bytes))?,
                    graph: Timing::from_rounds(bytes, &slower(&movers, |m| &m.graph)),
                    single: slower_single(&movers),
                    wrong_bytes: of(lower).wrong + of(upper).wrong,
                    rounds,
                    note: None,
                })
            };
            for (index, one) in series.iter().enumerate() {
                let (blocks, threads) = one.candidate.geometry();
                points.push(Point {
                    blocks,
                    threads,
                    bytes_in_flight: one.candidate.bytes_in_flight(bytes),
                    ..point(index, one.column, one.candidate.method())?
                });
            }
            if beside {
                let method = baseline::method(direction).to_owned();
                points.push(point(series.len(), Column::Nvshmem, method)?);
            }
            let looped = Timing::from_rounds(bytes, &ucx.looped);
            if let Some(looped) = looped.filter(|_| number == 0) {
                let method = Test::Bandwidth.name().to_owned();
                points.push(Point {
                    looped,
                    graph: None,
                    single: None,
                    wrong_bytes: 0,
                    blocks: 0,
                    threads: 0,
                    ..point(0, Column::UcxPerftest, method)?
                });
            }
        }
        for (lower, upper) in self.pairing.pairs() {
            let of_pair =
                |point: &&mut Point| (point.rank, point.peer) == (lower as u32, upper as u32);
            best_of_measured(&mut points.iter_mut().filter(of_pair).collect::<Vec<_>>());
        }
        Ok(points)
    }

    /// Checks the chosen candidate of a column and captures it. Collective.
    fn prepare<'a>(
        &self,
        case: &Case,
        column: Column,
        candidate: &'a Candidate,
        each_ns: f64,
        rounds: u32,
    ) -> Result<Series<'a>> {
        let repeats = self.repeats(each_ns, rounds);
        let means = candidate.means;
        let mut measured = Measured {
            wrong: self.session.check(case, means)?,
            ..Measured::default()
        };
        let mut graph = None;
        if means != TransferMethod::Memcpy {
            graph = self.session.graph(case, means, repeats)?;
            measured.wrong += self.session.check_replay(case, graph.as_ref())?;
        }
        Ok(Series {
            column,
            candidate,
            each_ns,
            repeats,
            graph,
            measured,
        })
    }

    /// Times graph replays and single transfers of one column. Collective.
    fn replay_and_single(&self, case: &Case, one: &mut Series<'_>, rounds: u32) -> Result<()> {
        let means = one.candidate.means;
        if means == TransferMethod::Memcpy {
            return Ok(());
        }
        for _ in 0..rounds {
            let ns = self.session.replayed(one.graph.as_ref(), one.repeats)?;
            one.measured.graph.push(ns);
        }
        // A launch and a wait add about 20 µs on a GPU.
        let overhead = if self.by_caller { 0.0 } else { 2e4 };
        let samples = samples(one.each_ns + overhead, self.budget() / 2.0);
        one.measured.single = self.session.single(case, means, samples)?;
        one.graph = None;
        Ok(())
    }
}

/// Copies a column's result to the next more general column if it is better: `Block128` to `BlockBest` to
/// `GridBest`. The short search before the rounds is unreliable below about 64 KiB.
fn best_of_measured(points: &mut [&mut Point]) {
    for (lesser, greater) in [
        (Column::Block128, Column::BlockBest),
        (Column::BlockBest, Column::GridBest),
    ] {
        let find = |points: &[&mut Point], column| points.iter().position(|p| p.column == column);
        let (Some(from), Some(to)) = (find(points, lesser), find(points, greater)) else {
            continue;
        };
        if points[from].looped.gbps > points[to].looped.gbps {
            *points[to] = Point {
                column: greater,
                ..points[from].clone()
            };
        }
    }
}

/// Returns for each round the time of the slower moving rank.
fn slower(movers: &[Measured], times: impl Fn(&Measured) -> &Vec<f64>) -> Vec<f64> {
    let rounds = movers.iter().map(|mover| times(mover).len()).min();
    let of_round = |round| {
        let times = movers.iter().map(|mover| times(mover)[round]);
        times.fold(0.0, f64::max)
    };
    (0..rounds.unwrap_or(0)).map(of_round).collect()
}

/// Returns the larger of the ranks' percentiles.
fn slower_single(movers: &[Measured]) -> Option<SingleShot> {
    let each = movers
        .iter()
        .filter_map(|mover| SingleShot::from_samples(&mover.single));
    each.reduce(|a, b| SingleShot {
        p50_ns: a.p50_ns.max(b.p50_ns),
        p99_ns: a.p99_ns.max(b.p99_ns),
    })
}

fn no_time(rank: usize, column: Column, bytes: u64) -> BenchError {
    BenchError::NoTime {
        rank,
        what: format!("{} of {bytes} bytes", column.label()),
        advice: "check that the device's clock advances",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_round_the_slower_rank_counts() {
        let mover = |looped: &[f64]| Measured {
            looped: looped.to_vec(),
            ..Measured::default()
        };
        let movers = [mover(&[1.0, 5.0, 2.0]), mover(&[3.0, 4.0, 2.0])];
        assert_eq!(slower(&movers, |m| &m.looped), [3.0, 5.0, 2.0]);
        assert!(slower(&movers, |m| &m.graph).is_empty());
        assert!(slower(&[], |m| &m.looped).is_empty());
    }

    #[test]
    fn what_the_fixed_block_reached_counts_for_the_best_block_and_the_best_grid() {
        let point = |column, ns| Point {
            direction: Direction::Push,
            traffic: Traffic::OneWay,
            rank: 0,
            peer: 1,
            bytes: 1000,
            column,
            method: format!("{column:?}"),
            blocks: 1,
            threads: 128,
            bytes_in_flight: 0,
            looped: Timing::from_rounds(1000, &[ns]).unwrap(),
            graph: None,
            single: None,
            wrong_bytes: 0,
            rounds: 1,
            note: None,
        };
        let mut points = [
            point(Column::Block128, 10.0),
            point(Column::BlockBest, 20.0),
            point(Column::GridBest, 5.0),
        ];
        best_of_measured(&mut points.iter_mut().collect::<Vec<_>>());
        assert_eq!(points[1].method, "Block128");
        assert_eq!(points[1].column, Column::BlockBest);
        assert_eq!(points[2].method, "GridBest", "faster as it is");
    }

    #[test]
    fn single_shots_are_the_slower_ranks_and_none_without_samples() {
        let mover = |ns| Measured {
            single: vec![ns; 3],
            ..Measured::default()
        };
        let single = slower_single(&[mover(5.0), mover(9.0)]).unwrap();
        assert_eq!((single.p50_ns, single.p99_ns), (9.0, 9.0));
        assert_eq!(slower_single(&[Measured::default()]), None);
    }
}
