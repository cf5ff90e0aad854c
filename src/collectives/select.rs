//! The selector's query for a call.

use crate::backend::abi::{
    AlgorithmCode, CollectiveOperationCode, ElementTypeCode, RawNccl, ReduceOpCode,
};
use crate::base::error::Result;
use crate::base::limits::{COLLECTIVE_CHANNELS, check_channel};
use crate::base::names::{CollectiveOperation, ElementType, ReduceOp};
use crate::collectives::options::CollectiveOptions;
use crate::group::choice::{Choice, Constraints, Query};
use crate::group::membership::Membership;
use crate::group::operations;
use crate::group::provider::Provider;
use crate::group::reserve;
use crate::group::state::State;
use crate::rank::context::check_one_node;
use crate::world::world::World;
use std::sync::Arc;

/// The properties of a collective call that, with its options, determine how it is done
/// ([`crate::Communicator::explain_call`]). Must be the same on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveCall {
    /// The operation.
    pub operation: CollectiveOperation,
    /// Size in bytes, as nccl-tests counts it: for all-reduce, reduce and broadcast one rank's elements;
    /// otherwise the larger of source and destination.
    pub bytes: u64,
    /// Element type; ignored by operations that do not reduce.
    pub element: ElementType,
    /// Reduction operator; ignored by operations that do not reduce.
    pub reduce: ReduceOp,
    /// Whether source and destination are the same memory.
    pub in_place: bool,
    /// Whether both ranges, and each rank's part of them, start at multiples of 16 bytes.
    pub aligned: bool,
    /// Whether source or destination is a [`crate::DeviceSlice`].
    pub own_memory: bool,
    /// Whether multicast reaches both buffers ([`crate::SymmetricBuffer::is_in_multicast`]).
    pub in_multicast: bool,
}

impl CollectiveCall {
    /// Makes a call that is out of place, sums if it reduces, and has aligned ranges in buffers that multicast
    /// reaches. `bytes` is counted as [`CollectiveCall::bytes`].
    pub fn new(operation: CollectiveOperation, bytes: u64, element: ElementType) -> Self {
        Self {
            operation,
            bytes,
            element,
            reduce: ReduceOp::Sum,
            in_place: false,
            aligned: true,
            own_memory: false,
            in_multicast: true,
        }
    }
}

impl From<&CollectiveOptions<'_>> for Constraints {
    fn from(options: &CollectiveOptions<'_>) -> Self {
        Self {
            algorithm: options.algorithm,
            blocks: options.blocks,
            fewer_blocks: options.fewer_blocks,
            threads: options.threads,
            concurrent: options.concurrent,
            provider: options.provider,
        }
    }
}

/// What the selector must know of the members on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Their number.
    pub members: usize,
    /// Whether they are all ranks of the world, in order.
    whole: bool,
    /// Whether multicast reaches their slots.
    pub in_multicast: bool,
    /// Channels of their inboxes for pieces.
    push_channels: u32,
    /// Whether they have inboxes for Lamport packets.
    has_lamport: bool,
}

impl Near {
    /// Returns what the selector must know of the members on this rank's node.
    pub fn here(state: &State, membership: &Membership, channel: u32) -> Self {
        let (slots, selector) = (&membership.slots, &state.selector);
        Self {
            members: membership.world(),
            whole: membership.whole,
            in_multicast: slots.at_all(channel).is_some(),
            push_channels: selector.push_channels(slots.inboxes(channel)),
            has_lamport: slots.lamport(channel).is_some(),
        }
    }

    /// Returns what it must know of `members` members on another node: what [`Near::here`] returns there. Groups over nodes have neither
    /// multicast nor a communicator of NCCL inside a node.
    pub fn elsewhere(state: &State, membership: &Membership, channel: u32, members: usize) -> Self {
        let selector = &state.selector;
        let inbox = membership.slots.has_pieces().then(|| {
            let channels = reserve::push_channels(selector, members);
            selector.inbox(members, channels)
        });
        let inbox = inbox.filter(|inbox| channel == 0 && inbox.channels != 0);
        Self {
            members,
            whole: false,
            in_multicast: false,
            push_channels: selector.channels_of(inbox.as_ref()),
            has_lamport: channel == 0 && members > 1,
        }
    }
}

/// A [`CollectiveCall`] in the table's codes: what a call, or a question about one, says of itself.
pub struct Asked {
    pub operation: CollectiveOperationCode,
    pub element: ElementTypeCode,
    pub reduce: ReduceOpCode,
    pub bytes: u64,
    pub in_place: bool,
    pub aligned: bool,
    pub own_memory: bool,
    pub in_multicast: bool,
}

impl From<&CollectiveCall> for Asked {
    fn from(call: &CollectiveCall) -> Self {
        Self {
            operation: call.operation.into(),
            element: call.element.into(),
            reduce: call.reduce.into(),
            bytes: call.bytes,
            in_place: call.in_place,
            aligned: call.aligned,
            own_memory: call.own_memory,
            in_multicast: call.in_multicast,
        }
    }
}

impl Asked {
    /// Returns the selector's query for a call of these members, and NCCL's communicator if it could do the call. Members
    /// may differ in where their own memory is, but not in the choice.
    pub fn question(
        &self,
        state: &State,
        near: &Near,
        options: &CollectiveOptions<'_>,
    ) -> (Query, Option<RawNccl>) {
        let own_memory = self.own_memory;
        let aligned = self.aligned && !own_memory;
        // NCCL's communicator has all ranks, so it serves no other group.
        let library = near.whole.then_some(&state.nccl);
        let library = library.and_then(|nccl| nccl.of(options.provider, aligned));
        let asked =
            options.provider != Provider::Automatic || options.algorithm == AlgorithmCode::VENDOR;
        let library = library.filter(|_| asked || self.has_one_result());
        let in_place = match own_memory {
            // For all others it makes no difference.
            true => self.operation == CollectiveOperationCode::ALL_TO_ALL,
            false => self.in_place,
        };
        // Symmetric ranges that are reduced by pushing start at multiples of 16 bytes.
        let pushed = aligned || own_memory || !operations::reduces(self.operation);
        let query = Query {
            operation: self.operation,
            element: self.element,
            reduce: self.reduce,
            world: near.members as u32,
            bytes: self.bytes,
            in_place,
            own_memory,
            nccl: library.is_some(),
            multicast: self.in_multicast && !own_memory && near.in_multicast,
            push_channels: match pushed {
                true => near.push_channels,
                false => 0,
            },
            lamport_bytes: self.lamport_bytes(near.has_lamport, aligned),
        };
        (query, library)
    }

    /// Returns the most bytes that a member may send to another in Lamport packets: what a part cannot hold takes several
    /// launches. The caller's own memory has pieces for a choice, which took longer wherever they were timed.
    fn lamport_bytes(&self, has_inbox: bool, aligned: bool) -> u64 {
        if !has_inbox {
            return 0;
        }
        let sums = operations::reduces(self.operation);
        let narrow = self.element.bytes() == 1;
        if self.own_memory || aligned && !(sums && narrow) {
            u64::MAX
        } else if sums && !narrow {
            MOST_SUM_BY_GENERAL_KERNEL
        } else {
            MOST_BY_GENERAL_KERNEL
        }
    }

    /// Returns whether NCCL has the result that symmem has, but for the rounding of sums.
    fn has_one_result(&self) -> bool {
        !operations::reduces(self.operation)
            || self.reduce != ReduceOpCode::AVERAGE
            || operations::nccl_averages_alike(self.element)
    }
}

/// Most bytes that a member sends another in Lamport packets by the kernel for all calls: ranges that do not start at
/// multiples of 16 bytes, and sums of 8-bit types. On two GPUs, algorithms with barriers are faster above
/// at odd addresses; at multiples of 4, packets still were at twice as many (`benches/results/2026-11-26-lamport-2xh200.json`).
const MOST_BY_GENERAL_KERNEL: u64 = 1 << 20;
/// The same for sums of wider types.
const MOST_SUM_BY_GENERAL_KERNEL: u64 = 4 << 20;

/// What to do if the members of a group are on several nodes.
const WITHIN_A_NODE: &str = "pass a group of the ranks of one node, made by `Communicator::split` with `Communicator::node` as color";

/// Returns the members on this node of the group in the options, by default of all ranks.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] if there is no such channel, or the group is another communicator's.
pub fn group<'g>(
    world: &'g Arc<World>,
    name: &'static str,
    options: &CollectiveOptions<'g>,
) -> Result<&'g Membership> {
    check_channel(options.channel, COLLECTIVE_CHANNELS)
        .map_err(|message| world.invalid(name, message))?;
    match options.group {
        None => Ok(&world.collectives.everyone),
        Some(group) if Arc::ptr_eq(group.world(), world) => Ok(group.membership()),
        Some(_) => Err(world.invalid(name, "the group belongs to another communicator")),
    }
}

/// Returns the members of a group for an operation within a node.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] if there is no such channel, or the group is another communicator's;
/// [`crate::Error::Unsupported`] if its members are on several nodes.
pub fn membership<'g>(
    world: &'g Arc<World>,
    name: &'static str,
    options: &CollectiveOptions<'g>,
) -> Result<&'g Membership> {
    let membership = group(world, name, options)?;
    check_one_node(world.rank, &membership.span.placement, name, WITHIN_A_NODE)?;
    Ok(membership)
}

/// Returns the selector's choice for a call.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] if the options cannot be met.
pub fn choose(
    world: &World,
    name: &'static str,
    query: &Query,
    options: &CollectiveOptions<'_>,
) -> Result<Choice> {
    let choice = world.collectives.selector.choose(query, &options.into());
    choice.map_err(|message| world.invalid(name, message))
}

/// Logs the choice for a call that is about to be enqueued.
pub fn log(world: &World, name: &'static str, query: &Query, choice: Choice) {
    tracing::trace!(
        rank = world.rank,
        operation = name,
        stage = query.operation.name(),
        bytes = query.bytes,
        world = query.world,
        algorithm = choice.algorithm.name(),
        blocks = choice.blocks,
        threads = choice.threads,
        "collective"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lamport_bytes(call: CollectiveCall) -> u64 {
        Asked::from(&call).lamport_bytes(true, call.aligned && !call.own_memory)
    }

    #[test]
    fn lamport_packets_are_bounded_where_only_the_general_kernel_serves() {
        use CollectiveOperation::{AllGather, AllReduce, ReduceScatter};
        use ElementType::{Bf16, F8E4M3, U8};
        let call = |operation, element, aligned, own_memory| CollectiveCall {
            aligned,
            own_memory,
            ..CollectiveCall::new(operation, 1 << 20, element)
        };
        let bounds = [
            ((AllReduce, Bf16, true, false), u64::MAX),
            ((AllReduce, Bf16, false, false), 4 << 20),
            ((ReduceScatter, F8E4M3, true, false), 1 << 20),
            ((AllReduce, F8E4M3, false, false), 1 << 20),
            ((AllGather, U8, true, false), u64::MAX),
            ((AllGather, Bf16, false, false), 1 << 20),
            // Members may differ in where their own memory starts.
            ((AllReduce, F8E4M3, true, true), u64::MAX),
            ((AllReduce, F8E4M3, false, true), u64::MAX),
            ((AllGather, Bf16, false, true), u64::MAX),
        ];
        for ((operation, element, aligned, own), bytes) in bounds {
            let call = call(operation, element, aligned, own);
            assert_eq!(lamport_bytes(call), bytes, "{call:?}");
        }
        let call = CollectiveCall::new(AllReduce, 1 << 20, Bf16);
        assert_eq!(Asked::from(&call).lamport_bytes(false, true), 0);
    }
}
