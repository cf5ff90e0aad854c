//! State of a measurement between pairs at one rank.

use super::baseline::Baseline;
use super::candidates::Candidate;
use super::pairing::Pairing;
use super::perftest::{Perftest, Test};
use super::session::{Case, Session};
use super::sizes::{Effort, fewer_rounds, repeats};
use super::{Result, exchange};
use symmem::backend::abi::Capabilities;

/// Time budget for all rounds of one point, looped or replayed; less on the host backend, where a copy of 64 MiB
/// takes many milliseconds, so that a whole run takes seconds.
const POINT_NS: f64 = 50e6;
const POINT_NS_ON_HOST: f64 = 12e6;
/// The same between nodes, where the first transfers fill buffers and windows.
const POINT_NS_BETWEEN_NODES: f64 = 150e6;
/// Maximum number of rounds between nodes.
const ROUNDS_BETWEEN_NODES: u32 = 5;
/// Maximum number of transfers between nodes back to back: each round also waits for the last one.
const REPEATS_BETWEEN_NODES: f64 = 400.0;

pub(super) struct Run<'a> {
    pub session: Session<'a>,
    pub capabilities: Capabilities,
    pub effort: Effort,
    pub by_caller: bool,
    pub pairing: Pairing,
    /// Whether the pairs are ranks of two nodes each.
    pub across: bool,
    /// `ucx_perftest`, beside puts between nodes.
    pub perftest: Option<Perftest>,
    /// Whether the run has a baseline; ranks without a peer have no process of it.
    pub has_baseline: bool,
    pub baseline: Option<Baseline>,
}

impl Run<'_> {
    /// Returns the time budget for all rounds of a point, in nanoseconds.
    pub(super) fn budget(&self) -> f64 {
        match (self.across, self.by_caller) {
            (true, _) => POINT_NS_BETWEEN_NODES,
            (_, true) => POINT_NS_ON_HOST,
            (_, false) => POINT_NS,
        }
    }

    /// Measures once with `ucx_perftest`, if it takes part; returns nanoseconds. Collective.
    pub(super) fn beside(&mut self, test: Test, bytes: u64) -> Result<Option<f64>> {
        match &mut self.perftest {
            Some(perftest) => perftest.round(self.session.communicator, test, bytes),
            None => Ok(None),
        }
    }

    /// Returns the number of transfers back to back in each of `rounds`.
    pub(super) fn repeats(&self, each_ns: f64, rounds: u32) -> u32 {
        let budget = self.budget() / f64::from(rounds);
        match self.across {
            true => (budget / each_ns).clamp(1.0, REPEATS_BETWEEN_NODES) as u32,
            false => repeats(each_ns, budget),
        }
    }

    /// Returns the number of rounds for a point whose slowest column takes `each_ns` per transfer.
    pub(super) fn rounds(&self, each_ns: f64) -> u32 {
        let wanted = match self.across {
            // Each round also starts the baseline's processes twice.
            true => self.effort.rounds().min(ROUNDS_BETWEEN_NODES),
            false => self.effort.rounds(),
        };
        match self.by_caller || self.across {
            true => fewer_rounds(wanted, each_ns, self.budget()),
            false => wanted,
        }
    }

    /// Returns the time per transfer of each candidate in nanoseconds, for the slowest moving rank. Collective.
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
