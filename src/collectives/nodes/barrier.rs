//! The barrier over nodes.

use super::stages::Nodes;
use super::task::{Task, Work};
use crate::base::error::Result;

impl Nodes<'_> {
    /// Enqueues a barrier: the members of a node meet, one of them meets those of the other nodes, and lets the
    /// others go on.
    pub fn barrier(&self) -> Result<()> {
        let several = self.membership.world() > 1;
        if several {
            self.queue.barrier_here(self.options, self.membership)?;
        }
        if self.membership.rank == 0 {
            self.legs(vec![Task {
                members: self.leaders(self.placement().members(0)[0]),
                own: self.node(),
                work: Work::Barrier,
            }])?;
        }
        match several {
            true => self.queue.barrier_here(self.options, self.membership),
            false => self.queue.join_network(),
        }
    }
}
