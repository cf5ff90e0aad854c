//! From a request to the backend: compare, check, choose, plan, submit.
//!
//! Outside of a capture, nothing here allocates or locks, unless calls are compared
//! ([`crate::Configuration::check_calls`]) or logged.

use crate::backend::abi::*;
use crate::backend::{CallResult, CollectiveKernels, Device};
use crate::base::error::Result;
use crate::base::names;
use crate::base::planner::TransferOptions;
use crate::collectives::chosen::{BARRIER, Chosen, barrier_choice, barrier_query, chosen};
use crate::collectives::compare::Comparison;
use crate::collectives::multicast::{self, MulticastAddresses};
use crate::collectives::options::CollectiveOptions;
use crate::collectives::plan::{Range, Shape};
use crate::collectives::request::Request;
use crate::collectives::run::copy_engine::Engine;
use crate::collectives::run::kernel::{self, PeerPaths, geometry};
use crate::collectives::run::nccl;
use crate::collectives::select::{Near, group, log};
use crate::group::choice::Choice;
use crate::group::membership::Membership;
use crate::rank::memory_range::MemoryRange;
use crate::rank::submit::Submit;
use crate::stream::queue::Queue;
use crate::world::world::World;

/// Returns what the waits of a call's kernels watch: the abort word and the call's deadline.
pub fn watch(world: &World, options: &CollectiveOptions<'_>) -> Watch {
    world.watch(options.deadline.unwrap_or(world.deadlines.wait))
}

impl Queue {
    /// Compares, checks, chooses and enqueues a collective.
    pub(crate) fn collective(
        &self,
        request: &Request<'_>,
        options: &CollectiveOptions<'_>,
    ) -> Result<()> {
        let world = self.world();
        world.health.check()?;
        let membership = group(world, request.name, options)?;
        let request = &request.with_own_memory(world.rank);
        if world.collectives.check_calls {
            Comparison::new(world, membership, options, request.name).of_call(request)?;
        }
        let span = &membership.span;
        if !span.placement.spans_nodes() {
            return self.collective_within(request, options, membership);
        }
        let checked = request
            .validate(world.rank, (span.members.len(), span.rank))
            .map_err(|message| self.invalid(request.name, message))?;
        match request.counted_bytes(span.members.len()) {
            0 => Ok(()),
            _ => self.collective_over_nodes(request, options, membership, checked),
        }
    }

    /// Checks, chooses and enqueues a collective of the members on this node, with root and parts by their numbers there.
    pub(crate) fn collective_within(
        &self,
        request: &Request<'_>,
        options: &CollectiveOptions<'_>,
        membership: &Membership,
    ) -> Result<()> {
        let world = self.world();
        let state = &world.collectives;
        let request = &request.with_own_memory(world.rank);
        let near = Near::here(state, membership, options.channel);
        let place = (membership.world(), membership.rank);
        let Some(chosen) = chosen(world, request, options, (&near, place))? else {
            // For a group of one, every operation is a copy.
            let bytes = request.destination.bytes().min(request.source.bytes());
            return self.copy_local(
                request.name,
                &request.destination.part(0, bytes),
                &request.source,
            );
        };
        let Chosen {
            query,
            choice,
            library,
            in_place,
            parts,
        } = chosen;
        log(world, request.name, &query, choice);
        let aligned = !query.own_memory && request.starts_at_vectors(in_place, &parts);
        if choice.algorithm == AlgorithmCode::VENDOR && !aligned {
            nccl::refuse_unaligned(world.rank, request, options.provider)?;
        }
        let run = Run {
            request,
            options,
            membership,
            choice,
            library,
            in_place,
            parts,
        };
        // Copies by the copy engine wait with one block, which always has room; a kernel that copies the own part waits for
        // no peer.
        let waits_as_grid = choice.algorithm != AlgorithmCode::COPY_ENGINE
            || request.operation == CollectiveOperationCode::ALL_REDUCE;
        let sequence = membership.sequence(options.channel);
        if waits_as_grid {
            self.admit(request.name, sequence)?;
        }
        let submit = self.submit(request.name);
        if waits_as_grid {
            submit.follow(sequence, state.selector.residency().fits(choice.blocks));
        }
        let enqueued = run.submit(world, &submit);
        submit
            .end(enqueued)
            .map_err(|error| error.about(None, query.bytes))
    }

    /// Enqueues a barrier of the members in `options`.
    pub(crate) fn barrier_of(&self, options: &CollectiveOptions<'_>) -> Result<()> {
        const NAME: &str = BARRIER;
        let world = self.world();
        world.health.check()?;
        let membership = group(world, NAME, options)?;
        if membership.span.members.len() == 1 {
            return Ok(());
        }
        if world.collectives.check_calls {
            Comparison::new(world, membership, options, NAME).of_barrier()?;
        }
        match membership.span.placement.spans_nodes() {
            true => self
                .nodes(
                    (NAME, CollectiveOperationCode::BARRIER),
                    options,
                    membership,
                )?
                .barrier(),
            false => self.barrier_here(options, membership),
        }
    }

    /// Enqueues a barrier of the members on this node, of which there are several.
    pub(crate) fn barrier_here(
        &self,
        options: &CollectiveOptions<'_>,
        membership: &Membership,
    ) -> Result<()> {
        const NAME: &str = BARRIER;
        let world = self.world();
        let slots = &membership.slots;
        let operation = CollectiveOperationCode::BARRIER;
        let watch = watch(world, options);
        let header = slots.header(options.channel, operation, watch, options.dependents);
        let reach = slots.at_all(options.channel);
        let near = Near::here(&world.collectives, membership, options.channel);
        let choice = barrier_choice(world, options, &near)?;
        if let (AlgorithmCode::MULTICAST, Some(slots_of_all)) = (choice.algorithm, reach) {
            log(world, NAME, &barrier_query(&near), choice);
            let meeting = multicast::meeting(&header, slots_of_all);
            let grid = geometry(choice.blocks, choice.threads);
            let sequence = membership.sequence(options.channel);
            self.admit(NAME, sequence)?;
            let submit = self.submit(NAME);
            submit.hold(slots.allocation());
            let residency = world.collectives.selector.residency();
            submit.follow(sequence, residency.fits(choice.blocks));
            let (backend, stream) = (submit.backend(), submit.stream());
            // SAFETY: as in `Run::submit`.
            let enqueued = unsafe { backend.collective_multicast(&meeting, &grid, stream) };
            return submit.end(enqueued);
        }
        let submit = self.submit(NAME);
        submit.hold(slots.allocation());
        let engine = Engine {
            backend: submit.backend(),
            steps: slots.steps(options.channel),
            header,
            whole: membership.whole,
            stream: submit.stream(),
            fanout: world.capabilities.fanout,
            own_grid: [0, 0],
        };
        // SAFETY: as in `Run::submit`.
        let enqueued = unsafe { engine.barrier() };
        submit.end(enqueued)
    }

    /// Enqueues a copy within this rank; the source has as many bytes as the destination.
    pub(crate) fn copy_local(
        &self,
        name: &'static str,
        to: &MemoryRange<'_>,
        from: &MemoryRange<'_>,
    ) -> Result<()> {
        let rank = self.world().rank;
        if to.bytes() == 0 || to.is_at(rank, from, 0) {
            return Ok(());
        }
        let transfer = (names::Direction::Put, rank);
        let options = TransferOptions::default();
        self.copy(name, transfer, (to, rank), (from, rank), &options, None)
    }
}

fn place<'p>(
    submit: &Submit<'_>,
    memory: &MemoryRange<'p>,
    membership: &'p Membership,
) -> Range<'p> {
    match submit.bases(memory) {
        Some(bases) => Range::Symmetric {
            bases,
            members: &membership.members,
            offset: memory.offset(),
        },
        None => Range::Own {
            member: membership.rank,
            start: submit.address(memory, submit.rank()),
        },
    }
}

/// A call after its checks and the selector's choice.
struct Run<'r, 'a> {
    request: &'r Request<'a>,
    options: &'r CollectiveOptions<'r>,
    membership: &'r Membership,
    choice: Choice,
    /// NCCL's communicator, if it could do the call.
    library: Option<RawNccl>,
    in_place: bool,
    parts: crate::collectives::plan::PartLayout<'a>,
}

impl Run<'_, '_> {
    fn submit(&self, world: &World, submit: &Submit<'_>) -> CallResult<()> {
        let Self {
            request,
            options,
            membership,
            choice,
            ..
        } = self;
        let (backend, stream, channel) = (submit.backend(), submit.stream(), options.channel);
        let slots = &membership.slots;
        submit.hold(slots.allocation());
        let shape = Shape {
            operation: request.operation,
            rank: membership.rank,
            world: membership.world(),
            root: request.root,
            destination: place(submit, &request.destination, membership),
            source: place(submit, &request.source, membership),
            in_place: self.in_place,
            parts: self.parts,
        };
        // SAFETY of every call below: the ranges are inside live allocations, which `submit` keeps, as it keeps
        // the group's memory. All members make the same choice: their selectors were compared, and their calls
        // are the same.
        if let (AlgorithmCode::VENDOR, Some(library)) = (choice.algorithm, self.library) {
            // SAFETY: as above.
            return unsafe { nccl::submit(backend, library, request, &shape, stream) };
        }
        let watch = watch(world, options);
        let header = slots.header(channel, request.operation, watch, options.dependents);
        let paths = PeerPaths {
            inboxes: slots.inboxes(channel),
            lamport: slots.lamport(channel),
            reach: self.reach(submit),
        };
        if choice.algorithm != AlgorithmCode::COPY_ENGINE {
            // SAFETY: as above.
            return unsafe {
                kernel::submit(backend, request, &shape, &header, &paths, choice, stream)
            };
        }
        let engine = Engine {
            backend,
            steps: slots.steps(channel),
            header,
            whole: membership.whole,
            stream,
            fanout: world.capabilities.fanout,
            own_grid: [choice.blocks, choice.threads],
        };
        // SAFETY: the stream is live.
        let captured = unsafe { backend.stream_capturing(stream) }?;
        let side_streams = membership.lanes.side_streams(channel, captured);
        let concurrent = choice.concurrent;
        if request.operation != CollectiveOperationCode::ALL_REDUCE {
            // SAFETY: as above.
            return unsafe { engine.submit(&shape, concurrent, side_streams) };
        }
        // Every rank reduces its share into its own destination, then all gather the shares.
        let gathering = shape.gathering(request.element);
        // SAFETY: as above. The kernel ends with a barrier: no rank still reads what the copies overwrite.
        unsafe {
            kernel::submit(backend, request, &shape, &header, &paths, choice, stream)?;
            engine.submit_after_barrier(&gathering, concurrent, side_streams)
        }
    }

    /// Returns the multicast addresses of the call's memory. `None` for a group made by `split`, which has no
    /// multicast object, and for the caller's memory, which is bound to none.
    fn reach(&self, submit: &Submit<'_>) -> Option<MulticastAddresses> {
        Some(MulticastAddresses {
            slots: self.membership.slots.at_all(self.options.channel)?,
            destination: submit.at_all(&self.request.destination)?,
            source: submit.at_all(&self.request.source)?,
        })
    }
}
