//! Plans without work: the stages and legs that a call would enqueue, for `explain` and for checks.

use super::stages::Nodes;
use super::task::Task;
use crate::base::error::Result;
use crate::base::names::CollectiveOperation;
use crate::collectives::explanation::{BetweenNodes, Carrier, Explanation, NodeLeg, Stage};
use crate::group::choice::Choice;
use crate::stream::queue::Queue;
use std::cell::RefCell;

/// What a plan is made for.
#[derive(Clone, Copy)]
pub enum Purpose<'n> {
    /// Its stages and legs are enqueued here.
    Enqueue(&'n Queue),
    /// They are written down.
    Rehearse(&'n Rehearsal),
}

/// What a plan would enqueue at a member.
#[derive(Default)]
pub struct Rehearsal {
    stages: RefCell<Vec<Stage>>,
    legs: RefCell<Vec<NodeLeg>>,
}

impl Rehearsal {
    /// Writes a stage down: of stages that differ in their size only, the largest.
    pub fn add_stage(&self, operation: CollectiveOperation, bytes: u64, choice: Choice) {
        let mut stages = self.stages.borrow_mut();
        let known = stages
            .iter_mut()
            .find(|stage| (stage.operation, stage.choice) == (operation, choice));
        match known {
            Some(stage) => stage.bytes = stage.bytes.max(bytes),
            None => stages.push(Stage {
                operation,
                bytes,
                choice,
            }),
        }
    }

    /// Writes a leg down, likewise.
    pub fn add_leg(&self, leg: NodeLeg) {
        let mut legs = self.legs.borrow_mut();
        let known = legs
            .iter_mut()
            .find(|known| (known.shape, known.members) == (leg.shape, leg.members));
        match known {
            Some(known) => known.bytes = known.bytes.max(leg.bytes),
            None => legs.push(leg),
        }
    }

    /// Returns what was written down.
    pub fn explanation(self, carrier: Option<Carrier>) -> Explanation {
        let legs = self.legs.into_inner();
        Explanation {
            stages: self.stages.into_inner(),
            between_nodes: carrier.map(|carrier| BetweenNodes { carrier, legs }),
        }
    }
}

impl Nodes<'_> {
    /// Describes a leg, whoever carries it.
    ///
    /// # Errors
    /// As [`Nodes::leg`].
    pub fn describe(&self, task: &Task) -> Result<NodeLeg> {
        let leg = self.leg(task.work.clone())?;
        let members = task.members.len();
        Ok(NodeLeg {
            shape: self.library.is_err().then(|| leg.shape()),
            members,
            bytes: leg.data_bytes(members, task.own),
        })
    }

    /// Logs a leg that is about to be enqueued.
    ///
    /// # Errors
    /// As [`Nodes::leg`].
    pub fn log_leg(&self, task: &Task) -> Result<()> {
        if tracing::enabled!(tracing::Level::TRACE) {
            let leg = self.describe(task)?;
            tracing::trace!(
                rank = self.world.rank,
                operation = self.name,
                carrier = if self.library.is_ok() { "NCCL" } else { "UCX" },
                shape = leg.shape.map_or("", |shape| shape.name()),
                members = leg.members,
                bytes = leg.bytes,
                "leg between nodes"
            );
        }
        Ok(())
    }
}
