//! Measures one point: check, rounds in which the contenders take turns, and collection of the ranks' results.

use super::element::RowFloat;
use super::options::Options;
use super::session::{Implementation, Session};
use crate::outcome::{Outcome, agree, not_here};
use crate::report::collectives::{PlacementResults, Time};
use crate::report::norms::{ALL_REDUCE, FUSED, NormEntry, NormPoint};
use crate::sizes::{fewer_rounds, slowest};
use crate::{Result, exchange};
use serde::{Deserialize, Serialize};
use symmem::Graph;

/// Most calls back to back in a round and in a graph, and most launches of a graph in a round: as for collectives.
const CALLS: f64 = 20.0;
const LAUNCHES: f64 = 5.0;
/// Time for all rounds of a contender, looped or replayed; and on the host backend, so that a run takes seconds.
const SERIES_NS: f64 = 100e6;
const SERIES_NS_ON_HOST: f64 = 6e6;

/// A contender in the rounds of a point.
struct Series {
    name: &'static str,
    by: Implementation,
    /// Why it does not make this call.
    absent: Option<String>,
    graph: Option<Graph>,
    calls: u32,
    launches: u32,
    each_ns: f64,
    measured: Measured,
}

/// One rank's measurements of a contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Measured {
    looped: Vec<f64>,
    graph: Vec<f64>,
    wrong: u64,
    checked: u64,
}

/// What all points of a run share.
pub(super) struct Rounds<'r, 'a, T: RowFloat> {
    pub(super) session: &'r Session<'a, T>,
    pub(super) options: &'r Options,
    pub(super) on_host: bool,
    /// The name of NCCL or RCCL, if it was opened.
    pub(super) vendor: Option<&'static str>,
}

impl<T: RowFloat> Rounds<'_, '_, T> {
    /// Measures a point. Collective.
    pub(super) fn measure(&self, point: NormPoint) -> Result<NormPoint> {
        let contenders = [
            (FUSED, Some(Implementation::Fused)),
            // Only the fused call is checked.
            (
                ALL_REDUCE,
                self.options.benchmark.then_some(Implementation::AllReduce),
            ),
            (
                self.vendor.unwrap_or_default(),
                self.vendor.map(|_| Implementation::Vendor),
            ),
        ];
        let mut all = Vec::new();
        for (name, by) in contenders {
            if let Some(by) = by {
                all.push(self.prepare(&point, name, by)?);
            }
        }
        let mut rounds = 0;
        if self.options.benchmark {
            let slowest = all.iter().map(|one| one.each_ns).fold(1.0, f64::max);
            let wanted = self.rounds();
            rounds = fewer_rounds(wanted, slowest, self.budget()).min(wanted);
            for _ in 0..rounds {
                for one in &mut all {
                    self.round(&point, one)?;
                }
            }
        }
        self.put_together(point, rounds, all)
    }

    fn rounds(&self) -> u32 {
        let usual = self.options.effort.rounds();
        self.options.rounds.unwrap_or(usual).max(1)
    }

    fn budget(&self) -> f64 {
        match self.on_host {
            true => SERIES_NS_ON_HOST,
            false => SERIES_NS,
        }
    }

    /// Checks a contender, determines its number of calls in a round, and captures them. Collective.
    fn prepare(&self, point: &NormPoint, name: &'static str, by: Implementation) -> Result<Series> {
        let session = self.session;
        let mut series = Series {
            name,
            by,
            absent: None,
            graph: None,
            calls: 2,
            launches: 1,
            each_ns: 0.0,
            measured: Measured::default(),
        };
        // The first call shows whether the contender makes it.
        let called: Outcome<f64> = not_here(session.looped(point, by, series.calls))?;
        let first = match agree(session.communicator, called)? {
            Ok(first) => first,
            Err(reason) => {
                series.absent = Some(reason);
                return Ok(series);
            }
        };
        let checks = by == Implementation::Fused && self.options.validate;
        if checks {
            series.count(session.check(point)?);
        }
        if self.options.benchmark {
            // The first calls touch pages and warm caches, so the faster of two tries counts.
            let faster = session.looped(point, by, series.calls)?.min(first);
            let tries = exchange::all_gather(session.communicator, &faster)?;
            series.each_ns = tries.into_iter().fold(1.0, f64::max);
            let in_round = self.budget() / f64::from(self.rounds()) / series.each_ns;
            series.calls = in_round.clamp(1.0, CALLS) as u32;
            series.launches = (in_round / CALLS).clamp(1.0, LAUNCHES) as u32;
        }
        let graph = session.graph(point, by, series.calls)?;
        if checks {
            series.count(session.check_replay(point, &graph)?);
        }
        series.graph = Some(graph);
        Ok(series)
    }

    /// Measures one round of a contender. Collective.
    fn round(&self, point: &NormPoint, series: &mut Series) -> Result<()> {
        let Some(graph) = &series.graph else {
            return Ok(());
        };
        let (calls, launches) = (series.calls, series.launches);
        let looped = self.session.looped(point, series.by, calls)?;
        let replayed = self.session.replayed(graph, calls, launches)?;
        series.measured.looped.push(looped);
        series.measured.graph.push(replayed);
        Ok(())
    }

    /// Combines the ranks' measurements. Collective.
    fn put_together(
        &self,
        mut point: NormPoint,
        rounds: u32,
        series: Vec<Series>,
    ) -> Result<NormPoint> {
        let own: Vec<&Measured> = series.iter().map(|one| &one.measured).collect();
        let own: Vec<Measured> = own.into_iter().cloned().collect();
        let all = exchange::all_gather(self.session.communicator, &own)?;
        for (index, one) in series.into_iter().enumerate() {
            let ranks: Vec<&Measured> = all.iter().filter_map(|rank| rank.get(index)).collect();
            point.entries.push(NormEntry {
                by: one.name.into(),
                absent: one.absent,
                results: combined(&ranks),
            });
        }
        point.rounds = rounds;
        Ok(point)
    }
}

impl Series {
    fn count(&mut self, (wrong, checked): (u64, u64)) {
        self.measured.wrong += wrong;
        self.measured.checked += checked;
    }
}

/// Combines the ranks' measurements: the slowest rank's time of each round, and sums of counts.
fn combined(ranks: &[&Measured]) -> PlacementResults {
    PlacementResults {
        looped: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.looped))),
        graph: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.graph))),
        single: None,
        wire_bytes: None,
        wrong: ranks.iter().map(|rank| rank.wrong).sum(),
        checked: ranks.iter().map(|rank| rank.checked).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_round_the_slowest_rank_counts_and_wrong_elements_add_up() {
        let rank = |looped: [f64; 3], wrong| Measured {
            looped: looped.into(),
            wrong,
            checked: 10,
            ..Measured::default()
        };
        let ranks = [rank([1.0, 5.0, 2.0], 1), rank([3.0, 4.0, 2.0], 2)];
        let all = combined(&ranks.iter().collect::<Vec<_>>());
        assert_eq!((all.looped.unwrap().ns, all.graph), (3.0, None));
        assert_eq!((all.wrong, all.checked), (3, 20));
    }
}
