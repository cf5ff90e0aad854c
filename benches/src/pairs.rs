//! A measurement between pairs that is under way at one rank.

use super::baseline::Baseline;
use super::candidates::Candidate;
use super::session::{Case, Session};
use super::sizes::{Effort, fewer_rounds};
use super::{Result, exchange};
use symmem::backend::abi::Capabilities;

/// Time for all rounds of one point of one kind. On the host, where one copy of 64 MiB takes many
/// milliseconds, less, so that a whole run takes seconds.
const POINT_NS: f64 = 50e6;
const POINT_NS_ON_HOST: f64 = 12e6;

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
