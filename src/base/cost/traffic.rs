//! Counts of messages and bytes of one collective among equals, without any hierarchy.

use super::algorithm::LegAlgorithm;
use super::machine::MOST;
use crate::base::names::CollectiveOperation;
use std::ops::Add;

/// Messages and bytes of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Messages.
    pub messages: f64,
    /// Bytes.
    pub bytes: f64,
    /// Bytes that arrived and are reduced with what is there.
    pub reduced: f64,
}

/// What a collective asks of its ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Steps that depend on each other.
    pub steps: u32,
    /// Work on the way from the first step to the last: in each step that of the busiest rank and direction.
    pub path: Work,
    /// Work over all steps of the busiest rank, in its busier direction.
    pub load: Work,
}

impl Work {
    const fn new(messages: f64, bytes: f64) -> Self {
        Self {
            messages,
            bytes,
            reduced: 0.0,
        }
    }

    /// Returns the same work times `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            messages: self.messages * factor,
            bytes: self.bytes * factor,
            reduced: self.reduced * factor,
        }
    }
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            reduced: self.reduced + other.reduced,
        }
    }
}

/// One after the other, with the same ranks busiest in the same direction.
impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            path: self.path + other.path,
            load: self.load + other.load,
        }
    }
}

impl Traffic {
    /// Work that the same rank does in every step, or all of it in one step.
    const fn on_one_rank(steps: u32, work: Work) -> Self {
        Self {
            steps,
            path: work,
            load: work,
        }
    }

    /// The same, and every byte that arrives is reduced.
    fn reducing(mut self) -> Self {
        for work in [&mut self.path, &mut self.load] {
            work.reduced = work.bytes;
        }
        self
    }
}

/// Returns the counts of `operation` by `leg` among `ranks` ranks; `None` if the algorithm or the formula has no such
/// operation. One rank alone has no traffic.
///
/// `bytes` is nccl-tests' size: of one rank's elements for all-reduce, broadcast and reduce, otherwise of the buffer
/// with one part per rank.
pub fn traffic(
    operation: CollectiveOperation,
    leg: LegAlgorithm,
    ranks: u32,
    bytes: f64,
) -> Option<Traffic> {
    use CollectiveOperation as Operation;
    use LegAlgorithm::{Direct, Halving, Ring, Tree};
    let ranks = ranks.clamp(1, MOST);
    let others = ranks - 1;
    let rounds = ranks.next_power_of_two().ilog2();
    let part = bytes / f64::from(ranks);
    let again = |operation, leg| traffic(operation, leg, ranks, bytes);
    // Each rank sends or receives every part but its own, in equally many messages and steps.
    let parts = |steps, messages| {
        let work = Work::new(f64::from(messages), f64::from(others) * part);
        Traffic::on_one_rank(steps, work)
    };
    // A rank sends or receives the whole buffer once a message.
    let wholes = |messages| Work::new(f64::from(messages), f64::from(messages) * bytes);
    let at_once = u32::from(others > 0);
    Some(match (operation, leg) {
        (Operation::AllReduce, Direct) => Traffic::on_one_rank(at_once, wholes(others)).reducing(),
        (Operation::AllReduce, Ring | Halving) => {
            again(Operation::ReduceScatter, leg)? + again(Operation::AllGather, leg)?
        }
        // The root receives in the first half what it sends in the second: the link carries both at once.
        (Operation::AllReduce, Tree) => {
            let (up, down) = (
                again(Operation::Reduce, leg)?,
                again(Operation::Broadcast, leg)?,
            );
            Traffic {
                load: up.load,
                ..up + down
            }
        }
        (Operation::ReduceScatter, Direct) => parts(at_once, others).reducing(),
        (Operation::ReduceScatter, Ring) => parts(others, others).reducing(),
        (Operation::ReduceScatter, Halving) => parts(rounds, rounds).reducing(),
        (Operation::AllGather | Operation::AllToAll, Direct) => parts(at_once, others),
        (Operation::AllGather | Operation::AllToAll, Ring) => parts(others, others),
        (Operation::AllGather, Halving) => parts(rounds, rounds),
        (Operation::AllToAll, Halving) => {
            // In round k, the parts whose distance to their destination has bit k.
            let hops: u64 = (1..=others)
                .map(|distance| u64::from(distance.count_ones()))
                .sum();
            let work = Work::new(f64::from(rounds), hops as f64 * part);
            Traffic::on_one_rank(rounds, work)
        }
        (Operation::Broadcast | Operation::Reduce, Direct) => {
            let counts = Traffic::on_one_rank(at_once, wholes(others));
            if_reduces(operation, counts)
        }
        (Operation::Broadcast | Operation::Reduce, Ring) => {
            let counts = Traffic {
                steps: others,
                path: wholes(others),
                load: wholes(at_once),
            };
            if_reduces(operation, counts)
        }
        (Operation::Broadcast | Operation::Reduce, Tree) => {
            if_reduces(operation, Traffic::on_one_rank(rounds, wholes(rounds)))
        }
        (Operation::Broadcast, Halving) => {
            again(Operation::Scatter, Tree)? + again(Operation::AllGather, Halving)?
        }
        (Operation::Reduce, Halving) => {
            again(Operation::ReduceScatter, Halving)? + again(Operation::Gather, Tree)?
        }
        (Operation::Gather | Operation::Scatter, Direct) => parts(at_once, others),
        (Operation::Gather | Operation::Scatter, Tree) => parts(rounds, rounds),
        _ => return None,
    })
}

fn if_reduces(operation: CollectiveOperation, traffic: Traffic) -> Traffic {
    match operation {
        CollectiveOperation::Reduce => traffic.reducing(),
        _ => traffic,
    }
}
