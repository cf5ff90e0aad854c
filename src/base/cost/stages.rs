//! The stages of a hierarchical collective.

use super::algorithm::{Hierarchical, LegAlgorithm, NodeStage};
use super::machine::Machine;
use super::traffic::{Traffic, traffic};
use crate::base::names::CollectiveOperation;

/// The links of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Those inside a node.
    Inside,
    /// The rails.
    Between,
}

/// One stage: a collective among the ranks of a node, or among the ranks of equal local number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stage {
    pub class: Class,
    pub operation: CollectiveOperation,
    pub leg: LegAlgorithm,
    /// Ranks that take part in one instance of the collective.
    pub members: u32,
    /// nccl-tests' size of the stage.
    pub bytes: f64,
    /// Ranks that share one link.
    pub sharing: u32,
}

impl Stage {
    /// Returns the counts of one rank; `None` if the algorithm has no such operation.
    pub fn traffic(&self) -> Option<Traffic> {
        traffic(self.operation, self.leg, self.members, self.bytes)
    }
}

/// Returns the stages in order; `None` if there is no such algorithm for `operation`. For operations with a root, the
/// root is the leader of its node.
pub(super) fn stages(
    machine: &Machine,
    operation: CollectiveOperation,
    bytes: f64,
    algorithm: Hierarchical,
) -> Option<Vec<Stage>> {
    use CollectiveOperation::{
        AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter,
    };
    use NodeStage::{Leader, OneShot, Sharded};
    let (nodes, local) = machine.shape();
    let inside = |operation, bytes| Stage {
        class: Class::Inside,
        operation,
        leg: LegAlgorithm::Direct,
        members: local,
        bytes,
        sharing: 1,
    };
    let between = |bytes, sharing| Stage {
        class: Class::Between,
        operation,
        leg: algorithm.leg,
        members: nodes,
        bytes,
        sharing,
    };
    // A leg on each rank, with its share or with everything; a leg on the leader alone.
    let share = between(bytes / f64::from(local), machine.ranks_per_rail());
    let on_each = between(bytes, machine.ranks_per_rail());
    let on_leader = between(bytes, 1);
    let of_node = bytes / f64::from(nodes);
    let stages = match (operation, algorithm.node) {
        (AllReduce, Sharded) => vec![
            inside(ReduceScatter, bytes),
            share,
            inside(AllGather, bytes),
        ],
        (AllReduce, OneShot) => vec![inside(AllReduce, bytes), on_each],
        (AllReduce, Leader) => vec![inside(Reduce, bytes), on_leader, inside(Broadcast, bytes)],
        (ReduceScatter, Sharded) => vec![inside(ReduceScatter, bytes), share],
        (ReduceScatter, Leader) => vec![inside(Reduce, bytes), on_leader, inside(Scatter, of_node)],
        (AllGather, Sharded) => vec![share, inside(AllGather, bytes)],
        (AllGather, Leader) => vec![inside(Gather, of_node), on_leader, inside(Broadcast, bytes)],
        (AllToAll, Sharded) => vec![inside(AllToAll, bytes), on_each],
        (AllToAll, Leader) => {
            let all = bytes * f64::from(local);
            vec![inside(Gather, all), between(all, 1), inside(Scatter, all)]
        }
        (Broadcast, Sharded) => vec![inside(Scatter, bytes), share, inside(AllGather, bytes)],
        (Broadcast, Leader) => vec![on_leader, inside(Broadcast, bytes)],
        (Reduce, Sharded) => vec![inside(ReduceScatter, bytes), share, inside(Gather, bytes)],
        (Reduce, Leader) => vec![inside(Reduce, bytes), on_leader],
        (Gather, Sharded) => vec![share, inside(Gather, bytes)],
        (Gather, Leader) => vec![inside(Gather, of_node), on_leader],
        (Scatter, Sharded) => vec![inside(Scatter, bytes), share],
        (Scatter, Leader) => vec![on_leader, inside(Scatter, of_node)],
        _ => return None,
    };
    Some(stages)
}
