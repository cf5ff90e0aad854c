//! One stage of a collective over nodes: a call within the node, a copy, or a leg.

use super::layout::BUFFER;
use crate::backend::abi::{
    AlgorithmCode, CAPABILITY_COPY_ENGINE, CollectiveOperationCode, DeviceAddress, ElementTypeCode,
    HostMemory, ReduceOpCode,
};
use crate::base::error::Result;
use crate::base::names::{Direction, Method};
use crate::base::placement::Placement;
use crate::base::planner::TransferOptions;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::request::Request;
use crate::group::far::{CHANNEL, Far};
use crate::group::membership::Membership;
use crate::group::operations;
use crate::network::command::Action;
use crate::network::leg::leg::Leg;
use crate::network::leg::parts::Span;
use crate::network::legs::LegCall;
use crate::rank::memory_range::MemoryRange;
use crate::stream::queue::Queue;
use std::sync::Arc;

/// What a collective over nodes is made with.
#[derive(Clone, Copy)]
pub struct Nodes<'n> {
    /// The queue.
    pub queue: &'n Queue,
    /// The method's name, for errors.
    pub name: &'static str,
    /// The caller's options.
    pub options: &'n CollectiveOptions<'n>,
    /// The members on this node.
    pub membership: &'n Membership,
    /// The group's memory for legs.
    pub far: &'n Far,
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

/// Legs under way.
#[derive(Default)]
#[must_use]
pub struct Legs {
    /// What they write, to be copied from the mirror of the staging memory.
    results: Vec<Span>,
}

/// Most bytes that a kernel copies between staging memory and its mirror; above, the copy engine leaves the compute units to
/// other work. Not tuned yet.
const MOST_BY_KERNEL: u64 = 64 << 10;

impl Elements {
    /// Bytes that are only moved.
    pub const BYTES: Self = Self {
        element: ElementTypeCode::U8,
        bytes: 1,
        reduce: ReduceOpCode(0),
    };

    /// Returns the reduction within a node: an average is divided only by the last leg.
    pub fn within(self) -> Self {
        Self {
            reduce: match self.reduce {
                ReduceOpCode::AVERAGE => ReduceOpCode::SUM,
                other => other,
            },
            ..self
        }
    }
}

impl<'n> Nodes<'n> {
    /// Returns the placement of the group's members.
    pub fn placement(&self) -> &'n Placement {
        &self.membership.span.placement
    }

    /// Returns this rank's number in the group.
    pub fn own(&self) -> usize {
        self.membership.span.rank
    }

    /// Returns this rank's node, of the nodes of the group.
    pub fn node(&self) -> usize {
        self.placement().node(self.own())
    }

    /// Returns a range of the channel's staging memory.
    pub fn staged(&self, offset: u64, bytes: u64) -> MemoryRange<'n> {
        let channel = u64::from(self.options.channel) * CHANNEL;
        MemoryRange::new(&self.far.staging, channel + offset, bytes)
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
            destination: to,
            source: from,
        };
        let algorithm = self.options.algorithm;
        let has = operations::algorithms(operation).contains(&algorithm);
        let options = CollectiveOptions {
            algorithm: if has {
                algorithm
            } else {
                AlgorithmCode::AUTOMATIC
            },
            ..*self.options
        };
        self.queue
            .collective_within(&request, &options, self.membership)
    }

    /// Enqueues a copy within this rank.
    pub fn copy(&self, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        self.queue.copy_local(self.name, &to, &from)
    }

    /// Enqueues `begin` for each window: stages, and a leg on the buffer at the offset that it gets; then `finish` for what
    /// `begin` has returned, once the leg is complete. A leg runs beside the first stages of the next window.
    pub fn in_turn<T>(
        &self,
        windows: impl Iterator<Item = (u64, u64)>,
        begin: impl Fn(u64, (u64, u64)) -> Result<(Legs, T)>,
        finish: impl Fn(T) -> Result<()>,
    ) -> Result<()> {
        let end = |(number, (legs, begun)): (_, (Legs, T))| {
            self.queue.wait_for_legs(number)?;
            self.take_results(legs)?;
            finish(begun)
        };
        // The first stages wait for what was enqueued before this call.
        self.queue.join_network()?;
        let overlap = self.queue.overlap();
        let mut previous = None;
        for (index, window) in windows.enumerate() {
            let begun = begin(index as u64 % 2 * BUFFER, window)?;
            previous
                .replace((self.queue.last_leg(), begun))
                .map_or(Ok(()), end)?;
        }
        previous.map_or(Ok(()), end)?;
        drop(overlap);
        Ok(())
    }

    /// Describes a leg among the world's ranks `members`, of which this is `members[own]`.
    pub fn call(&self, members: &Arc<[usize]>, own: usize, leg: Leg) -> LegCall {
        let channel = self.staged(0, CHANNEL);
        LegCall {
            key: key(self.far.staging.number, self.options.channel, members),
            members: members.clone(),
            own,
            place: (self.far.staging.number, channel.offset()),
            address: match self.far.mirror {
                Some(mirror) => mirror.host + channel.offset(),
                None => channel.start(self.queue.world().rank),
            },
            bytes: CHANNEL,
            leg,
        }
    }

    /// Enqueues legs that run beside each other, and makes their results stages' input.
    pub fn legs(&self, calls: Vec<LegCall>) -> Result<()> {
        let legs = self.begin_legs(calls)?;
        self.take_results(legs)
    }

    /// Enqueues legs that run beside each other. Later work that is enqueued while the queue overlaps does not wait for them:
    /// see [`Queue::wait_for_legs`]. Their results are where stages find them after [`Nodes::take_results`].
    pub fn begin_legs(&self, calls: Vec<LegCall>) -> Result<Legs> {
        if calls.is_empty() {
            return Ok(Legs::default());
        }
        let mut results = Vec::new();
        if let Some(mirror) = self.far.mirror {
            for call in &calls {
                let members = call.members.len();
                for span in call.leg.reads(members, call.own) {
                    self.copy_staged(self.mirrored(mirror, span), self.staged_span(span))?;
                }
                results.extend(call.leg.writes(members, call.own));
            }
        }
        let submit = self.queue.submit_chained(self.name);
        submit.hold(&self.far.staging);
        let deadline = self
            .options
            .deadline
            .unwrap_or(self.queue.world().deadlines.wait);
        self.queue
            .enqueue_remote(&submit, self.name, deadline, Action::Legs(calls))?;
        Ok(Legs { results })
    }

    /// Makes the results of legs stages' input: copies them from the mirror, if there is one. While the queue overlaps, the
    /// caller has waited for the legs.
    pub fn take_results(&self, legs: Legs) -> Result<()> {
        let Some(mirror) = self.far.mirror else {
            return Ok(());
        };
        legs.results.into_iter().try_for_each(|span| {
            self.copy_staged(self.staged_span(span), self.mirrored(mirror, span))
        })
    }

    fn staged_span(&self, span: Span) -> MemoryRange<'n> {
        self.staged(span.offset, span.bytes)
    }

    /// Returns a range of the mirror of the channel's staging memory. It lives as long as that.
    fn mirrored(&self, mirror: HostMemory, span: Span) -> MemoryRange<'n> {
        let offset = self.staged_span(span).offset();
        MemoryRange::own(DeviceAddress(mirror.device.0 + offset), span.bytes)
    }

    /// Enqueues a copy between the staging memory and its mirror.
    fn copy_staged(&self, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        let world = self.queue.world();
        let by_engine =
            to.bytes() > MOST_BY_KERNEL && world.capabilities.flags & CAPABILITY_COPY_ENGINE != 0;
        let method = by_engine.then_some(Method::CopyEngine);
        let options = TransferOptions::new().method(method);
        let transfer = (Direction::Put, world.rank);
        self.queue.copy(
            self.name,
            transfer,
            (&to, world.rank),
            (&from, world.rank),
            &options,
            None,
        )
    }
}

/// Returns the key of the legs of a set of ranks: FNV-1a.
fn key(group: u64, channel: u32, members: &[usize]) -> u64 {
    let words = [group, channel.into()].into_iter();
    let words = words.chain(members.iter().map(|&member| member as u64));
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    })
}
