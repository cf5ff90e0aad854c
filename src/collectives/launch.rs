//! From a call to the backend: checks it, chooses how, plans and submits it.
//!
//! Nothing here allocates or locks outside of a capture, unless calls are compared
//! ([`crate::Configuration::check_calls`]) or logged.

use super::call::CollectiveOptions;
use super::check::Comparison;
use super::copy_engine::Engine;
use super::explain::{CollectiveCall, no_channel};
use super::group::Membership;
use super::inbox::Inboxes;
use super::multicast::{self, Reach};
use super::plan::{Parts, Place, Shape, VECTOR};
use super::selector::{Choice, Query, kernel_of};
use super::slots::{COLLECTIVE_CHANNELS, Header};
use super::vendor;
use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Collectives, Device, Failure, RemoteAccess};
use crate::buffer::BufferRange;
use crate::communicator::allocation::Allocation;
use crate::communicator::shared::Kept;
use crate::element::Element;
use crate::error::Result;
use crate::planner::{TransferOptions, plan};
use crate::stream::Stream;
use std::sync::Arc;

/// A range, without its element type.
#[derive(Clone, Copy)]
pub struct Extent<'a> {
    /// The allocation that it is a part of.
    pub allocation: &'a Arc<Allocation>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Extent<'_> {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Its first byte at all ranks at once; see [`Allocation::at_all`].
    fn at_all(&self) -> Option<DeviceAddress> {
        self.allocation.at_all(self.offset)
    }

    /// This rank's first byte of it.
    pub fn address(&self, rank: usize) -> DeviceAddress {
        self.allocation.at(rank, self.offset)
    }
}

/// What a method of [`Stream`] is asked to do.
pub struct Call<'a> {
    /// The method's name.
    pub name: &'static str,
    /// What it does.
    pub operation: CollectiveOperation,
    /// What the elements are, as far as the kernel has to know; [`ElementType::U8`] where it moves
    /// bytes.
    pub element: ElementType,
    /// Bytes of one.
    pub element_bytes: u64,
    /// How they become one; 0 where they do not.
    pub reduce: ReduceOperation,
    /// The root; 0 where there is none.
    pub root: usize,
    /// Elements of each rank where they differ.
    pub counts: Option<&'a [usize]>,
    /// What is written.
    pub destination: Extent<'a>,
    /// What is read.
    pub source: Extent<'a>,
}

impl Call<'_> {
    /// Whether the ranges, and members' parts of them, start at whole vectors, as far as that follows from
    /// what is alike on all ranks: in place the smaller range depends on the rank, so the larger one
    /// decides.
    fn starts_at_vectors(&self, in_place: bool) -> bool {
        let (to, from) = (&self.destination, &self.source);
        let starts = match in_place {
            true if to.bytes >= from.bytes => [to.offset, to.offset],
            true => [from.offset, from.offset],
            false => [to.offset, from.offset],
        };
        let part = match self.operation {
            CollectiveOperation::ALL_GATHER | CollectiveOperation::REDUCE_SCATTER => {
                to.bytes.min(from.bytes)
            }
            _ => 0,
        };
        let mut all = starts.into_iter().chain([part]);
        all.all(|offset| offset.is_multiple_of(VECTOR))
    }
}

impl Stream {
    /// A range of this communicator.
    pub(super) fn extent<'b, T: Element>(
        &self,
        name: &'static str,
        range: BufferRange<'b, T>,
    ) -> Result<Extent<'b>> {
        self.check_same(range.buffer().shared(), name)?;
        Ok(Extent {
            allocation: range.buffer().allocation(),
            offset: range.byte_offset(),
            bytes: range.bytes(),
        })
    }

    /// The members that options name.
    pub(super) fn membership<'g>(
        &'g self,
        name: &'static str,
        options: &CollectiveOptions<'g>,
    ) -> Result<&'g Membership> {
        if options.channel >= COLLECTIVE_CHANNELS {
            return Err(self.invalid(name, no_channel(options.channel)));
        }
        match options.group {
            None => Ok(&self.shared().collectives().everyone),
            Some(group) => {
                self.check_same(group.shared(), name)?;
                Ok(group.membership())
            }
        }
    }

    /// Refuses a reduction of a newer version.
    pub(super) fn check_reduction(
        &self,
        name: &'static str,
        reduce: ReduceOperation,
    ) -> Result<()> {
        if (ReduceOperation::SUM..=ReduceOperation::PRODUCT).contains(&reduce) {
            return Ok(());
        }
        Err(self.invalid(name, format!("there is no reduction {}", reduce.0)))
    }

    /// What a kernel of a call watches.
    pub(super) fn watch(&self, options: &CollectiveOptions<'_>) -> Watch {
        let shared = self.shared();
        shared
            .health
            .watch(options.deadline.unwrap_or(shared.options.deadline))
    }

    /// Does what `call` says.
    pub(super) fn collective(
        &self,
        call: &Call<'_>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let shared = self.shared();
        shared.health.check()?;
        let membership = self.membership(call.name, options)?;
        let state = shared.collectives();
        if state.check_calls {
            Comparison::new(shared, membership, options, call.name).of_call(call)?;
        }
        let (parts, in_place) = self.judge(call, membership)?;
        let largest = call.destination.bytes.max(call.source.bytes);
        let bytes = if call.counts.is_some() {
            call.destination.bytes
        } else {
            largest
        };
        if bytes == 0 {
            return Ok(());
        }
        if membership.world() == 1 {
            return self.copy_alone(call);
        }
        // The vendor's communicator is that of all ranks.
        let vendors = membership.whole.then_some(&state.vendors);
        let aligned = call.starts_at_vectors(in_place);
        let vendor = vendors.and_then(|vendors| vendors.of(options.provider, aligned));
        let inboxes = membership.slots.inboxes(options.channel);
        let reach = reach(membership, options.channel, call);
        let asked = CollectiveCall {
            operation: call.operation,
            bytes,
            element: call.element,
            reduce: call.reduce,
            in_place,
            aligned,
            in_multicast: reach.is_some(),
        };
        let query = state.query(&asked, membership, options.channel, vendor.is_some());
        let choice = self.choose(call.name, &query, options)?;
        if choice.algorithm == Algorithm::VENDOR && !aligned {
            vendor::refuse_unaligned_windows(shared.rank, call.name, options.provider)?;
        }
        let place = |extent: &Extent<'_>| extent.offset;
        let shape = Shape {
            operation: call.operation,
            rank: membership.rank,
            world: membership.world(),
            root: call.root,
            destination: Place {
                bases: &call.destination.allocation.peers,
                members: &membership.members,
                offset: place(&call.destination),
            },
            source: Place {
                bases: &call.source.allocation.peers,
                members: &membership.members,
                offset: place(&call.source),
            },
            in_place,
            parts,
        };
        let header = membership
            .slots
            .header(options.channel, call.operation, self.watch(options));
        let reaches = Reaches { inboxes, reach };
        let uses = [
            call.destination.allocation,
            call.source.allocation,
            membership.slots.allocation(),
        ];
        self.enqueue(
            || keep(&uses),
            || {
                let backend = &*shared.backend;
                if let (Algorithm::VENDOR, Some(vendor)) = (choice.algorithm, vendor) {
                    // SAFETY: as for `submit`.
                    return unsafe {
                        vendor::submit(backend, vendor, call, &shape, self.raw_handle())
                    };
                }
                if choice.algorithm == Algorithm::COPY_ENGINE {
                    let (stream, channel) = (self.raw_handle(), options.channel);
                    let engine = Engine {
                        backend,
                        steps: membership.slots.steps(channel),
                        header,
                        whole: membership.whole,
                        stream,
                        fanout: shared.capabilities.fanout,
                    };
                    // SAFETY: the stream is live.
                    let captured = unsafe { backend.stream_capturing(stream) }?;
                    let sides = membership.lanes.sides(channel, captured);
                    let concurrent = choice.concurrent;
                    if call.operation != CollectiveOperation::ALL_REDUCE {
                        // SAFETY: as for `submit`.
                        return unsafe { engine.submit(&shape, concurrent, sides) };
                    }
                    // Every rank reduces its share into its own destination, and all gather those.
                    let gathering = shape.gathering(call.element);
                    // SAFETY: as for `submit`. The kernel ends with a barrier: nobody still reads what
                    // the copies overwrite.
                    return unsafe {
                        submit(backend, call, &shape, &header, &reaches, &choice, stream)?;
                        engine.submit_after_barrier(&gathering, concurrent, sides)
                    };
                }
                // SAFETY: the ranges are inside live allocations, by their types; those of this
                // communicator are released only once its streams are idle and no graph keeps them. The
                // members choose alike, since the selector has been compared and the calls are alike.
                unsafe {
                    let stream = self.raw_handle();
                    submit(backend, call, &shape, &header, &reaches, &choice, stream)
                }
            },
        )
        .map_err(|failure| shared.failed(call.name, failure).about(None, bytes))
    }

    /// How a call is done; logged.
    pub(super) fn choose(
        &self,
        name: &'static str,
        query: &Query,
        options: &CollectiveOptions<'_>,
    ) -> Result<Choice> {
        let shared = self.shared();
        let choice = shared
            .collectives()
            .selector
            .choose(query, &options.into())
            .map_err(|message| self.invalid(name, message))?;
        tracing::trace!(
            rank = shared.rank,
            operation = name,
            bytes = query.bytes,
            world = query.world,
            algorithm = choice.algorithm.name(),
            blocks = choice.blocks,
            threads = choice.threads,
            "collective"
        );
        Ok(choice)
    }

    /// Checks lengths and overlaps. Gives the parts, and whether the call is in place.
    fn judge<'c>(&self, call: &Call<'c>, membership: &Membership) -> Result<(Parts<'c>, bool)> {
        use CollectiveOperation as O;
        let (world, rank) = (membership.world(), membership.rank);
        if call.root >= world {
            return Err(self.invalid(
                call.name,
                format!("there is no rank {} in a group of {world}", call.root),
            ));
        }
        let (to, from) = (&call.destination, &call.source);
        let elements = |bytes: u64| bytes / call.element_bytes;
        let wrong = |expected: u64| {
            Err(self.invalid(
                call.name,
                format!(
                    "the destination has {} elements, the source {}; for {world} ranks it takes \
                     {expected} in the destination",
                    elements(to.bytes),
                    elements(from.bytes),
                ),
            ))
        };
        let many = world as u64;
        let parts = match call.operation {
            O::ALL_GATHER | O::GATHER if to.bytes != from.bytes * many => {
                return wrong(elements(from.bytes * many));
            }
            O::ALL_GATHER | O::GATHER => Parts::Equal(from.bytes),
            O::REDUCE_SCATTER | O::SCATTER if from.bytes != to.bytes * many => {
                return wrong(elements(from.bytes) / many);
            }
            O::REDUCE_SCATTER | O::SCATTER => Parts::Equal(to.bytes),
            O::ALL_GATHER_V => {
                let counts = call.counts.unwrap_or_default();
                if counts.len() != world {
                    return Err(self.invalid(
                        call.name,
                        format!("{} counts for {world} ranks", counts.len()),
                    ));
                }
                let bytes = |&count: &usize| (count as u64).saturating_mul(call.element_bytes);
                let total = counts.iter().map(bytes).fold(0, u64::saturating_add);
                if to.bytes != total || from.bytes < bytes(&counts[rank]) {
                    return Err(self.invalid(
                        call.name,
                        format!(
                            "the counts add up to {} elements, {} of them from here, but the \
                             destination has {} and the source {}",
                            elements(total),
                            counts[rank],
                            elements(to.bytes),
                            elements(from.bytes)
                        ),
                    ));
                }
                Parts::Counted {
                    counts,
                    element_bytes: call.element_bytes,
                }
            }
            _ if to.bytes != from.bytes => return wrong(elements(from.bytes)),
            O::ALL_TO_ALL if !elements(from.bytes).is_multiple_of(many) => {
                return Err(self.invalid(
                    call.name,
                    format!(
                        "{} elements cannot be dealt out evenly to {world} ranks",
                        elements(from.bytes)
                    ),
                ));
            }
            O::ALL_TO_ALL => Parts::Equal(from.bytes / many),
            _ => Parts::Equal(to.bytes),
        };
        let own = self.shared().rank;
        // By addresses, since registered memory may be in two allocations.
        let (start, other) = (to.address(own).0, from.address(own).0);
        let part = parts.offset(rank);
        let in_place = match call.operation {
            O::ALL_GATHER | O::GATHER | O::ALL_GATHER_V => other == start + part,
            O::REDUCE_SCATTER | O::SCATTER => start == other + part,
            _ => start == other,
        };
        let overlap = start < other + from.bytes && other < start + to.bytes;
        // The part of a rank that gives nothing in place may lie anywhere.
        let nothing = call.operation == O::ALL_GATHER_V && parts.bytes(rank) == 0;
        if overlap && !in_place && !nothing {
            return Err(self.invalid(
                call.name,
                "destination and source overlap, but not as in place they would",
            ));
        }
        debug_assert!(
            to.end() <= to.allocation.own.bytes && from.end() <= from.allocation.own.bytes
        );
        Ok((parts, in_place))
    }

    /// Holds the stream until every member's stream is here.
    pub(super) fn barrier_of(&self, options: &CollectiveOptions<'_>) -> Result<()> {
        const NAME: &str = "group_barrier";
        let shared = self.shared();
        shared.health.check()?;
        let membership = self.membership(NAME, options)?;
        if membership.world() == 1 {
            return Ok(());
        }
        if shared.collectives().check_calls {
            Comparison::new(shared, membership, options, NAME).of_barrier()?;
        }
        let slots = &membership.slots;
        let operation = CollectiveOperation::BARRIER;
        let header = slots.header(options.channel, operation, self.watch(options));
        let reach = slots.at_all(options.channel);
        let mut options = *options;
        let unnamed = options.algorithm == Algorithm::AUTOMATIC;
        if unnamed && reach.is_some() && shared.collectives().selector.prefers_multicast() {
            options.algorithm = Algorithm::MULTICAST;
        }
        let options = &options;
        if options.algorithm.is_multicast() {
            let query = Query {
                push_channels: 0,
                multicast: reach.is_some(),
                operation,
                element: ElementType::U8,
                reduce: ReduceOperation::default(),
                world: membership.world() as u32,
                bytes: 0,
                in_place: false,
                vendor: false,
            };
            let choice = self.choose(NAME, &query, options)?;
            if let (Algorithm::MULTICAST, Some(slots_of_all)) = (choice.algorithm, reach) {
                let meeting = multicast::meeting(&header, slots_of_all);
                let grid = geometry(choice.blocks, choice.threads);
                let stream = self.raw_handle();
                return self
                    .enqueue(
                        || keep(&[slots.allocation()]),
                        // SAFETY: as in `collective`.
                        || unsafe { shared.backend.collective_multicast(&meeting, &grid, stream) },
                    )
                    .map_err(|failure| shared.failed(NAME, failure));
            }
        }
        let engine = Engine {
            backend: &shared.backend,
            steps: slots.steps(options.channel),
            header,
            whole: membership.whole,
            stream: self.raw_handle(),
            fanout: shared.capabilities.fanout,
        };
        self.enqueue(
            || keep(&[slots.allocation()]),
            // SAFETY: as in `collective`.
            || unsafe { engine.barrier() },
        )
        .map_err(|failure| shared.failed(NAME, failure))
    }

    /// Gathers shards of any sizes, of all ranks.
    pub(crate) fn gather_shards(&self, call: &GatherCall<'_>) -> Result<()> {
        let rank = self.shared().rank;
        let bytes = |count: usize| count as u64 * call.element_bytes;
        let equal = call.counts.iter().all(|count| *count == call.counts[0]);
        let (operation, name) = if equal {
            (CollectiveOperation::ALL_GATHER, "all_gather")
        } else {
            (CollectiveOperation::ALL_GATHER_V, "all_gather_v")
        };
        let extent = |(allocation, offset), bytes| Extent {
            allocation,
            offset,
            bytes,
        };
        let gathered = Call {
            name,
            operation,
            element: ElementType::U8,
            element_bytes: call.element_bytes,
            reduce: ReduceOperation::default(),
            root: 0,
            counts: (!equal).then_some(call.counts),
            destination: extent(call.destination, bytes(call.counts.iter().sum())),
            source: extent(call.source, bytes(call.counts[rank])),
        };
        self.collective(&gathered, call.options)
    }

    /// In debug mode compares a call that is no collective of its own with those of the other ranks.
    pub(crate) fn compare_call(
        &self,
        name: &'static str,
        options: &CollectiveOptions<'_>,
        fields: &[(&'static str, String)],
    ) -> Result<()> {
        let membership = self.membership(name, options)?;
        Comparison::new(self.shared(), membership, options, name).of_fields(fields)
    }

    /// A group of one: whatever the operation, its result is a copy.
    fn copy_alone(&self, call: &Call<'_>) -> Result<()> {
        let bytes = call.destination.bytes.min(call.source.bytes);
        self.copy_local(call.name, call.destination, call.source, bytes)
    }

    /// Copies within this rank.
    pub(super) fn copy_local(
        &self,
        name: &'static str,
        to: Extent<'_>,
        from: Extent<'_>,
        bytes: u64,
    ) -> Result<()> {
        let shared = self.shared();
        let (destination, source) = (to.address(shared.rank), from.address(shared.rank));
        if bytes == 0 || destination == source {
            return Ok(());
        }
        let options = TransferOptions::default();
        let skew = destination.0.wrapping_sub(source.0);
        let row = plan(&shared.capabilities, Direction::PUT, bytes, skew, &options)
            .map_err(|message| self.invalid(name, message))?;
        let transfer = Transfer {
            destination,
            source,
            bytes,
            signal: SignalTarget::default(),
            direction: Direction::LOCAL,
            row,
        };
        let uses = [to.allocation, from.allocation];
        self.enqueue(
            || keep(&uses),
            || {
                // SAFETY: both are inside live allocations and do not overlap, as was checked; the
                // allocations are released only once this rank's streams are idle.
                unsafe { shared.backend.transfer(&transfer, self.raw_handle()) }
            },
        )
        .map_err(|failure| shared.failed(name, failure).about(None, bytes))
    }
}

/// Shards of all ranks, to be gathered one behind the other.
pub struct GatherCall<'a> {
    /// Where they go: an allocation, and bytes into it.
    pub destination: (&'a Arc<Allocation>, u64),
    /// Where this rank's is.
    pub source: (&'a Arc<Allocation>, u64),
    /// Elements of each rank's; at least one is not 0.
    pub counts: &'a [usize],
    /// Bytes of an element.
    pub element_bytes: u64,
    /// How.
    pub options: &'a CollectiveOptions<'a>,
}

/// What a graph has to keep.
pub fn keep(uses: &[&Arc<Allocation>]) -> Vec<Kept> {
    uses.iter().map(|&used| used.clone() as Kept).collect()
}

/// A grid of the choice's size.
pub fn geometry(blocks: u32, threads: u32) -> Geometry {
    Geometry {
        blocks: [blocks, 1, 1],
        threads: [threads, 1, 1],
        shared_memory: 0,
    }
}

/// Where all members can be reached otherwise than by their own addresses, if they can.
struct Reaches<'a> {
    /// To push into.
    inboxes: Option<&'a Inboxes>,
    /// At once.
    reach: Option<Reach>,
}

/// Where a call's memory lies at all members at once. Members of a group that was split off have no object of
/// their own, and memory of the caller's is in none.
fn reach(membership: &Membership, channel: u32, call: &Call<'_>) -> Option<Reach> {
    Some(Reach {
        slots: membership.slots.at_all(channel)?,
        destination: call.destination.at_all()?,
        source: call.source.at_all()?,
    })
}

/// Submits what a kernel does.
///
/// # Safety
/// All ranges and the group's memory are live until the stream has passed this point, and every member
/// submits the same.
unsafe fn submit(
    backend: &Backend,
    call: &Call<'_>,
    shape: &Shape<'_>,
    header: &Header<'_>,
    reaches: &Reaches<'_>,
    choice: &Choice,
    stream: RawStream,
) -> CallResult<()> {
    let grid = geometry(choice.blocks, choice.threads);
    let (algorithm, element, reduce) = (choice.algorithm, call.element, call.reduce);
    match kernel_of(call.operation, algorithm) {
        Some(CollectiveKernel::MOVE) => {
            let two = call.operation == CollectiveOperation::BROADCAST
                && algorithm == Algorithm::TWO_SHOT;
            for stage in 0..if two { 2 } else { 1 } {
                let moved = shape.move_arguments(header, algorithm, stage, choice.concurrent);
                // SAFETY: the caller's word.
                unsafe { backend.collective_move(&moved, &grid, stream) }?;
            }
            Ok(())
        }
        Some(CollectiveKernel::SWAP) => {
            let swapped = shape.move_arguments(header, algorithm, 0, choice.concurrent);
            // SAFETY: the caller's word.
            unsafe { backend.collective_swap(&swapped, &grid, stream) }
        }
        Some(CollectiveKernel::PACKETS) => {
            let packets = shape.packet_arguments(header);
            // SAFETY: the caller's word.
            unsafe { backend.collective_packets(&packets, &grid, stream) }
        }
        Some(CollectiveKernel::REDUCE) => {
            let reduced = shape.reduce_arguments(header, algorithm, element, reduce);
            // SAFETY: the caller's word.
            unsafe { backend.collective_reduce(&reduced, &grid, stream) }
        }
        Some(CollectiveKernel::REDUCE_PUSH) => {
            let inboxes = reaches.inboxes;
            let reduced = shape.reduce_push_arguments(header, element, reduce, inboxes);
            // SAFETY: the caller's word.
            unsafe { backend.collective_reduce_push(&reduced, &grid, stream) }
        }
        Some(CollectiveKernel::MULTICAST_REDUCE | CollectiveKernel::MULTICAST_MOVE) => {
            let Some(reach) = &reaches.reach else {
                // The selector takes it only where there is one.
                let why = "not all that the call names is reached by multicast";
                let call = "collective_multicast";
                return Err(Failure::new(Status::INVALID_ARGUMENT, call, why));
            };
            let all = shape.multicast_arguments(header, reach, algorithm, element, reduce);
            // SAFETY: the caller's word.
            unsafe { backend.collective_multicast(&all, &grid, stream) }
        }
        _ => {
            let reduced = shape.reduce_packet_arguments(header, algorithm, element, reduce);
            // SAFETY: the caller's word.
            unsafe { backend.collective_reduce_packets(&reduced, &grid, stream) }
        }
    }
}
