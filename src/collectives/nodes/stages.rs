//! One stage of a collective over nodes: a call within the node, or a copy.

use super::rehearsal::Purpose;
use crate::backend::abi::{
    AlgorithmCode, CollectiveOperationCode, ElementTypeCode, RawNccl, ReduceOpCode,
};
use crate::base::error::{Error, Result};
use crate::base::names::CollectiveOperation;
use crate::base::placement::Placement;
use crate::collectives::chosen::chosen;
use crate::collectives::explanation::WithoutNccl;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::request::Request;
use crate::collectives::select::Near;
use crate::group::far::{CHANNEL, Far};
use crate::group::membership::Membership;
use crate::group::operations;
use crate::group::provider::Provider;
use crate::rank::memory_range::MemoryRange;
use crate::world::world::World;
use std::sync::Arc;

/// What a collective over nodes is made with.
#[derive(Clone, Copy)]
pub struct Nodes<'n> {
    /// The rank's world.
    pub world: &'n Arc<World>,
    /// Whether the plan is enqueued.
    pub purpose: Purpose<'n>,
    /// The member whose plan it is, by its number in the group: this rank, unless the plan of another member is rehearsed.
    pub member: usize,
    /// The method's name, for errors.
    pub name: &'static str,
    /// The caller's options.
    pub options: &'n CollectiveOptions<'n>,
    /// The members on this node.
    pub membership: &'n Membership,
    /// The group's memory for legs.
    pub far: &'n Far,
    /// NCCL's communicator of this rank's rail if it does the legs, else why it does not.
    pub library: std::result::Result<RawNccl, WithoutNccl>,
}

/// The elements of a call within the node, and how they are reduced if they are.
#[derive(Clone, Copy)]
pub struct Elements {
    /// The type; bytes in operations that move.
    pub element: ElementTypeCode,
    /// Bytes per element.
    pub bytes: u64,
    /// The operator.
    pub reduce: ReduceOpCode,
}

impl Elements {
    /// Returns the elements of a request.
    pub fn of(request: &Request<'_>) -> Self {
        Self {
            element: request.element,
            bytes: request.element_bytes,
            reduce: request.reduce,
        }
    }

    /// Bytes that are only moved.
    pub const BYTES: Self = Self {
        element: ElementTypeCode::U8,
        bytes: 1,
        reduce: ReduceOpCode(0),
    };
}

impl<'n> Nodes<'n> {
    /// Returns the placement of the group's members.
    pub fn placement(&self) -> &'n Placement {
        &self.membership.span.placement
    }

    /// Returns the member's number in the group.
    pub fn own(&self) -> usize {
        self.member
    }

    /// Returns the member's number among those of its node.
    pub fn local(&self) -> usize {
        self.placement().local_rank(self.member)
    }

    /// Returns the number of members on the member's node.
    pub fn here(&self) -> usize {
        self.placement().node_members(self.member).len()
    }

    /// Returns the number of members on all nodes.
    pub fn members(&self) -> usize {
        self.membership.span.members.len()
    }

    /// Returns the error of a call with arguments or options that are not possible.
    pub fn invalid(&self, message: impl Into<String>) -> Error {
        self.world.invalid(self.name, message)
    }

    /// Returns the error of a call that nodes exclude.
    pub fn unsupported(&self, message: impl Into<String>) -> Error {
        Error::Unsupported {
            rank: self.world.rank,
            operation: self.name,
            message: message.into(),
        }
    }

    /// Returns the member's node, of the nodes of the group.
    pub fn node(&self) -> usize {
        self.placement().node(self.own())
    }

    /// Returns a range of the channel's staging memory.
    pub fn staged(&self, offset: u64, bytes: u64) -> MemoryRange<'n> {
        let channel = u64::from(self.options.channel) * CHANNEL;
        MemoryRange::new(&self.far.staging, channel + offset, bytes)
    }

    /// Returns the reduction of stages before a leg. The network's legs divide a sum by all members of the group; NCCL's by
    /// the nodes, so that stages divide by the members on theirs.
    pub fn before_leg(&self, elements: Elements) -> Elements {
        let divided = self.library.is_ok();
        Elements {
            reduce: match elements.reduce {
                ReduceOpCode::AVERAGE if !divided => ReduceOpCode::SUM,
                other => other,
            },
            ..elements
        }
    }

    /// Enqueues a call of the members on this node. A named algorithm counts where the operation has it.
    pub fn within(
        &self,
        operation: CollectiveOperationCode,
        elements: Elements,
        root: usize,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        self.call_within((operation, elements, root), None, to, from)
    }

    /// Enqueues an all-gather or a reduce-scatter of the members on this node, whose parts lie at a distance of `stride`
    /// bytes in the larger range.
    pub fn strided_within(
        &self,
        operation: CollectiveOperationCode,
        elements: Elements,
        stride: u64,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        self.call_within((operation, elements, 0), Some(stride), to, from)
    }

    fn call_within(
        &self,
        (operation, elements, root): (CollectiveOperationCode, Elements, usize),
        stride: Option<u64>,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        if to.bytes() == 0 && from.bytes() == 0 {
            return Ok(());
        }
        let request = Request {
            name: self.name,
            operation,
            element: elements.element,
            element_bytes: elements.bytes,
            reduce: elements.reduce,
            root,
            counts: None,
            stride,
            destination: to,
            source: from,
        };
        let options = self.options_within(operation);
        let rehearsal = match self.purpose {
            Purpose::Enqueue(queue) => {
                return queue.collective_within(&request, &options, self.membership);
            }
            Purpose::Rehearse(rehearsal) => rehearsal,
        };
        let near = self.near();
        let request = request.with_own_memory(self.world.rank);
        let place = (self.here(), self.local());
        if let Some(chosen) = chosen(self.world, &request, &options, (&near, place))?
            && let Some(operation) = CollectiveOperation::of(operation)
        {
            rehearsal.add_stage(operation, chosen.query.bytes, chosen.choice);
        }
        Ok(())
    }

    /// Returns what the selector must know of the members on the member's node.
    pub fn near(&self) -> Near {
        let (state, channel) = (&self.world.collectives, self.options.channel);
        let own = self.membership.span.rank;
        let expected = || Near::elsewhere(state, self.membership, channel, self.here());
        if !self.placement().share_node(self.member, own) {
            return expected();
        }
        let near = Near::here(state, self.membership, channel);
        debug_assert_eq!(near, expected(), "what other nodes expect of this one");
        near
    }

    /// Returns the options of a call of the members on this node.
    pub fn options_within(&self, operation: CollectiveOperationCode) -> CollectiveOptions<'n> {
        let algorithm = self.options.algorithm;
        let has = algorithm != AlgorithmCode::VENDOR
            && operations::algorithms(operation).contains(&algorithm);
        CollectiveOptions {
            algorithm: if has {
                algorithm
            } else {
                AlgorithmCode::AUTOMATIC
            },
            // NCCL has a communicator of each rail, and none of a node.
            provider: Provider::Symmem,
            // Members that have only legs do not see that a grid has no room, and would wait for those that refuse it.
            fewer_blocks: true,
            ..*self.options
        }
    }

    /// Enqueues a copy within this rank.
    pub fn copy(&self, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        match self.purpose {
            Purpose::Enqueue(queue) => queue.copy_local(self.name, &to, &from),
            Purpose::Rehearse(_) => Ok(()),
        }
    }
}
