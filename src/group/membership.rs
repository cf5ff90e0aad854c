//! Members of a group that address each other's memory.

use crate::base::limits::COLLECTIVE_CHANNELS;
use crate::group::compared::Compared;
use crate::group::far::Far;
use crate::group::lanes::Lanes;
use crate::group::slots::Slots;
use crate::group::span::Span;
use crate::rank::sequence::Sequence;
use std::sync::Arc;

/// The members of a group on this rank's node, and the memory with which they synchronize. All are here unless the group
/// spans nodes.
pub struct Membership {
    /// All members of the group, on whichever nodes they are.
    pub span: Span,
    /// The communicator's rank of each member on this node.
    pub members: Vec<usize>,
    /// This rank's number among them.
    pub rank: usize,
    /// Whether the members are all ranks of the world, in order.
    pub whole: bool,
    /// What the legs between nodes need; `None` unless the group spans nodes.
    pub far: Option<Far>,
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
    /// Makes the membership of a group with `slots` for its members on this node.
    pub fn new(span: Span, whole: bool, slots: Slots, lanes: Lanes) -> Self {
        let (members, rank) = span.here();
        Self {
            span,
            members,
            rank,
            whole,
            far: None,
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

    /// Returns the number of members on this node.
    pub fn world(&self) -> usize {
        self.members.len()
    }
}
