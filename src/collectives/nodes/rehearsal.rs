//! Plans without work: the stages and legs that a call would enqueue, for `explain` and for checks.

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
    /// Records a stage; of stages that differ only in size, the largest.
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

    /// Records a leg; of legs that differ only in size, the largest.
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
