//! Members of a group.

use crate::base::limits::COLLECTIVE_CHANNELS;
use crate::group::compared::Compared;
use crate::group::lanes::Lanes;
use crate::group::slots::Slots;
use crate::rank::sequence::Sequence;
use std::sync::Arc;

/// The members of a group, and the memory with which they synchronize.
pub struct Membership {
    /// The communicator's rank of each member.
    pub members: Vec<usize>,
    /// This rank's number in the group.
    pub rank: usize,
    /// Whether the members are all ranks, in order.
    pub whole: bool,
    /// The group's slots.
    pub slots: Slots,
    /// This rank's side streams.
    pub lanes: Lanes,
    /// The sequence of each channel's collectives.
    pub sequences: [Arc<Sequence>; COLLECTIVE_CHANNELS as usize],
    /// The numbers of calls compared in debug mode.
    pub compared: Compared,
}

impl Membership {
    /// Makes the membership of `members`, of which this rank is `members[rank]`.
    pub fn new(members: Vec<usize>, rank: usize, whole: bool, slots: Slots, lanes: Lanes) -> Self {
        Self {
            members,
            rank,
            whole,
            slots,
            lanes,
            sequences: Default::default(),
            compared: Compared::default(),
        }
    }

    /// Returns the sequence of a channel's collectives.
    pub fn sequence(&self, channel: u32) -> &Arc<Sequence> {
        &self.sequences[channel as usize]
    }

    /// Returns the number of members.
    pub fn world(&self) -> usize {
        self.members.len()
    }
}
