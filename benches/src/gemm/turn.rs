//! What a contender does in a round, and its times.

use crate::by_caller::is_by_caller;
use crate::clock::Clock;
use crate::report::{Entry, Time};
use crate::sizes::slowest;
use crate::{Result, exchange};
use serde::{Deserialize, Serialize};
use symmem::{Communicator, Graph, Queue, Stream};

/// Maximum number of single calls per round.
pub(crate) const SINGLE: u32 = 5;
/// Calls are also replayed from graphs up to this M; above it, launch overhead is negligible.
pub(crate) const REPLAYED_ROWS: usize = 1024;
/// Maximum number of calls in a graph.
const CALLS: u32 = 20;
/// Maximum number of graph launches per round, back to back.
const LAUNCHES: u32 = 5;
/// Time budget for all rounds of one contender.
const SERIES_NS: f64 = 200e6;
/// The same on the host backend, so that a whole run takes seconds.
const SERIES_NS_ON_HOST: f64 = 6e6;

/// Returns the time budget for all rounds of one contender, in nanoseconds.
pub(crate) fn budget(communicator: &Communicator) -> f64 {
    match is_by_caller(communicator) {
        true => SERIES_NS_ON_HOST,
        false => SERIES_NS,
    }
}

/// The calls of a contender in each round, and this rank's measurements of them.
pub(crate) struct Turn {
    pub(crate) graph: Option<Graph>,
    /// Single calls per round.
    pub(crate) calls: u32,
    /// Calls in the graph, and launches of the graph per round.
    pub(crate) captured: u32,
    pub(crate) launches: u32,
    pub(crate) replays: bool,
    pub(crate) seen: Seen,
}

/// One rank's measurements of a contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) times: Vec<f64>,
    pub(crate) graph: Vec<f64>,
    pub(crate) ddlb: Option<f64>,
    pub(crate) wrong: u64,
    pub(crate) checked: u64,
}

impl Seen {
    pub(crate) fn count(&mut self, (wrong, checked): (u64, u64)) {
        self.wrong += wrong;
        self.checked += checked;
    }
}

impl Turn {
    pub(crate) fn new() -> Self {
        Self {
            graph: None,
            calls: 1,
            captured: 1,
            launches: 1,
            replays: true,
            seen: Seen::default(),
        }
    }

    /// Sets the numbers of calls so that a round takes about `round_ns` if a call takes `each_ns`.
    pub(crate) fn pace(&mut self, each_ns: f64, round_ns: f64) {
        let in_round = round_ns / each_ns;
        self.calls = in_round.clamp(1.0, SINGLE.into()) as u32;
        self.captured = in_round.clamp(1.0, CALLS.into()) as u32;
        let launches = in_round / f64::from(self.captured);
        self.launches = launches.clamp(1.0, LAUNCHES.into()) as u32;
    }

    /// Captures the calls of the graph. Collective.
    pub(crate) fn capture(
        &mut self,
        communicator: &Communicator,
        issue: impl Fn(&Queue) -> Result<()>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        let captured = self.captured;
        let graph = communicator.stream()?.capture(|on| {
            outcome = (0..captured).try_for_each(|_| issue(on));
            Ok(())
        });
        outcome?;
        self.graph = Some(graph?);
        Ok(())
    }

    /// Times one round of graph replays; returns the nanoseconds of a call. `None` without a graph. Collective.
    pub(crate) fn replay(&self, clock: &Clock<'_>, stream: &Stream) -> Result<Option<f64>> {
        let Some(graph) = &self.graph else {
            return Ok(None);
        };
        let launch = || Ok(stream.launch_graph(graph)?);
        launch()?;
        let all = || (0..self.launches).try_for_each(|_| launch());
        let total = clock.timed(stream, &all)?;
        Ok(Some(total / f64::from(self.captured * self.launches)))
    }
}

/// Returns the time of a call at the slowest rank, in nanoseconds. `times` times calls. Collective.
pub(crate) fn each_ns(
    communicator: &Communicator,
    mut times: impl FnMut() -> Result<Vec<f64>>,
) -> Result<f64> {
    // The first calls touch pages and warm caches, so the faster of two tries counts.
    let mut least = f64::INFINITY;
    for _ in 0..2 {
        least = times()?.into_iter().fold(least, f64::min);
    }
    let all = exchange::all_gather(communicator, &Some(least).filter(|ns| ns.is_finite()))?;
    Ok(all.into_iter().flatten().fold(1.0, f64::max))
}

/// Combines all ranks' measurements of contenders, each with its name and its details. Collective.
pub(crate) fn entries<'c>(
    communicator: &Communicator,
    contenders: impl Iterator<Item = (&'c str, &'c str, &'c Turn)>,
) -> Result<Vec<Entry>> {
    let contenders: Vec<_> = contenders.collect();
    let own: Vec<Seen> = (contenders.iter())
        .map(|(_, _, turn)| turn.seen.clone())
        .collect();
    let all = exchange::all_gather(communicator, &own)?;
    let one = |(index, &(name, how, _)): (usize, &(&str, &str, &Turn))| {
        let ranks: Vec<&Seen> = all.iter().filter_map(|rank| rank.get(index)).collect();
        Entry {
            by: name.into(),
            how: how.into(),
            ..entry(&ranks)
        }
    };
    Ok(contenders.iter().enumerate().map(one).collect())
}

/// Combines the ranks' measurements: the slowest rank's time of each round, and sums of the element counts.
fn entry(ranks: &[&Seen]) -> Entry {
    Entry {
        time: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.times))),
        graph: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.graph))),
        ddlb_ns: ranks.first().and_then(|first| first.ddlb),
        wrong: ranks.iter().map(|rank| rank.wrong).sum(),
        checked: ranks.iter().map(|rank| rank.checked).sum(),
        ..Entry::default()
    }
}

/// Returns the entry of a contender that cannot be measured.
pub(crate) fn missing(by: &str, reason: String) -> Entry {
    Entry {
        by: by.into(),
        absent: Some(reason),
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rank_counts_but_the_published_method_takes_rank_0() {
        let rank = |times: &[f64], ddlb, wrong| Seen {
            times: times.to_vec(),
            ddlb: Some(ddlb),
            wrong,
            checked: 10,
            ..Seen::default()
        };
        let ranks = [
            rank(&[1.0, 5.0, 2.0], 7.0, 1),
            rank(&[3.0, 4.0, 2.0], 9.0, 2),
        ];
        let entry = entry(&ranks.iter().collect::<Vec<_>>());
        assert_eq!(entry.time.unwrap().ns, 3.0);
        assert_eq!(entry.graph, None);
        assert_eq!(entry.ddlb_ns, Some(7.0));
        assert_eq!((entry.wrong, entry.checked), (3, 20));
    }
}
