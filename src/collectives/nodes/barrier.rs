//! The barrier over nodes.

use super::rehearsal::Purpose;
use super::stages::Nodes;
use super::task::{Task, Work};
use crate::base::error::Result;
use crate::base::names::CollectiveOperation;
use crate::collectives::chosen::barrier_choice;

impl Nodes<'_> {
    /// Enqueues a barrier: the members of a node meet, one of them meets those of the other nodes, and lets the
    /// others go on.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported), at all members, if the options name an algorithm that a node does not
    /// have.
    pub fn barrier(&self) -> Result<()> {
        let several = self.here() > 1;
        self.check_barrier()?;
        if several {
            self.barrier_within()?;
        }
        if self.local() == 0 {
            self.legs(vec![Task {
                members: self.leaders(self.placement().members(0)[0]),
                own: self.node(),
                work: Work::Barrier,
            }])?;
        }
        match (several, self.purpose) {
            (true, _) => self.barrier_within(),
            (false, Purpose::Enqueue(queue)) => queue.join_network(),
            (false, Purpose::Rehearse(_)) => Ok(()),
        }
    }

    /// Enqueues a barrier of the members on this node, of which there are several.
    fn barrier_within(&self) -> Result<()> {
        match self.purpose {
            Purpose::Enqueue(queue) => queue.barrier_here(self.options, self.membership),
            Purpose::Rehearse(rehearsal) => {
                let choice = barrier_choice(self.world, self.options, &self.near())?;
                rehearsal.add_stage(CollectiveOperation::Barrier, 0, choice);
                Ok(())
            }
        }
    }

    fn check_barrier(&self) -> Result<()> {
        if !self.names_grid() {
            return Ok(());
        }
        for node in 0..self.placement().nodes() {
            let members = self.placement().members(node);
            let there = Self {
                member: members[0],
                ..*self
            };
            if members.len() > 1 {
                barrier_choice(self.world, self.options, &there.near())
                    .map_err(|error| self.refused_on(node, error))?;
            }
        }
        Ok(())
    }
}
