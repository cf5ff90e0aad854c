//! The contenders, and each rank's measurements of them.

use super::calls::ContenderKind;
use super::element::MatrixFloat;
use crate::report::Time;
use crate::report::ag_gemm::Entry;
use crate::sizes::slowest;
use serde::{Deserialize, Serialize};
use symmem::Graph;

/// A contender during the measurement. The field order drops the graph before the call that it uses.
pub(super) struct Contender<'a, T: MatrixFloat> {
    pub(super) name: &'static str,
    pub(super) graph: Option<Graph>,
    pub(super) by: ContenderKind<'a, T>,
    pub(super) how: String,
    /// Single calls per round.
    pub(super) calls: u32,
    /// Calls in the graph, and launches of the graph per round.
    pub(super) captured: u32,
    pub(super) launches: u32,
    pub(super) replays: bool,
    pub(super) seen: Seen,
}

/// One rank's measurements of a contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) times: Vec<f64>,
    pub(super) graph: Vec<f64>,
    pub(super) ddlb: Option<f64>,
    pub(super) wrong: u64,
    pub(super) checked: u64,
}

impl<'a, T: MatrixFloat> Contender<'a, T> {
    pub(super) fn new(name: &'static str, by: ContenderKind<'a, T>, how: String) -> Self {
        Self {
            name,
            graph: None,
            by,
            how,
            calls: 1,
            captured: 1,
            launches: 1,
            replays: true,
            seen: Seen::default(),
        }
    }
}

impl Seen {
    pub(super) fn count(&mut self, (wrong, checked): (u64, u64)) {
        self.wrong += wrong;
        self.checked += checked;
    }
}

/// Combines the ranks' measurements: the slowest rank's time of each round, and sums of the element counts.
pub(super) fn entry(ranks: &[&Seen]) -> Entry {
    Entry {
        time: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.times))),
        graph: Time::from_rounds(&slowest(ranks.iter().map(|rank| &rank.graph))),
        ddlb_ns: ranks.first().and_then(|first| first.ddlb),
        wrong: ranks.iter().map(|rank| rank.wrong).sum(),
        checked: ranks.iter().map(|rank| rank.checked).sum(),
        ..Entry::default()
    }
}

pub(super) fn missing(by: &str, reason: String) -> Entry {
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
