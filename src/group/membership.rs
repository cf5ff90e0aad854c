//! Who takes part in a collective.

use crate::group::compared::Compared;
use crate::group::lanes::Lanes;
use crate::group::slots::Slots;

/// Who takes part in a collective, and the memory by which they keep in step.
pub struct Membership {
    /// The communicator's number of each member.
    pub members: Vec<usize>,
    /// This rank's number among them.
    pub rank: usize,
    /// Whether they are all ranks, in order.
    pub whole: bool,
    /// Their memory.
    pub slots: Slots,
    /// This rank's side streams.
    pub lanes: Lanes,
    /// What was compared in debug mode.
    pub compared: Compared,
}

impl Membership {
    /// These ranks, of which this one is `members[rank]`.
    pub fn new(members: Vec<usize>, rank: usize, whole: bool, slots: Slots, lanes: Lanes) -> Self {
        Self {
            members,
            rank,
            whole,
            slots,
            lanes,
            compared: Compared::default(),
        }
    }

    /// Ranks in it.
    pub fn world(&self) -> usize {
        self.members.len()
    }
}
