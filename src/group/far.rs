//! What a group that spans nodes has for the legs between them.

use crate::backend::abi::HostMemory;
use crate::base::limits::COLLECTIVE_CHANNELS;
use crate::group::span::Span;
use crate::rank::allocation::Allocation;
use std::sync::Arc;

/// Bytes of the memory for the legs of one channel.
pub const CHANNEL: u64 = 6 << 20;
/// Bytes of the memory for legs that a group has on each of its ranks: 24 MiB.
pub const STAGING: u64 = CHANNEL * COLLECTIVE_CHANNELS as u64;

/// The members that this rank meets on other nodes, and the memory that the legs use.
pub struct Far {
    /// Memory for the legs of all channels. The same size on all ranks.
    pub staging: Arc<Allocation>,
    /// What the network has registered in its place, and legs work on, if the host does not address the device's memory.
    pub mirror: Option<HostMemory>,
    /// The world's ranks of the members of this rank's number on each node, by node, if all nodes have as many members.
    pub rail: Option<Arc<[usize]>>,
    /// The world's rank of every member.
    pub everyone: Arc<[usize]>,
}

impl Far {
    /// Makes it for a group, with memory for legs and its mirror.
    pub fn new((staging, mirror): (Arc<Allocation>, Option<HostMemory>), span: &Span) -> Self {
        let placement = &span.placement;
        let rank = |number: &usize| span.members[*number];
        let rail = placement.is_even().then(|| {
            let rail = placement.rail(placement.local_rank(span.rank));
            rail.iter().map(rank).collect()
        });
        Self {
            staging,
            mirror,
            rail,
            everyone: span.members.as_slice().into(),
        }
    }
}
