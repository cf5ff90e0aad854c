//! Submission of the steps of a call.
//!
//! Outside of a capture, nothing here allocates or locks, unless calls are compared
//! ([`crate::Configuration::check_calls`]).

use crate::backend::abi::*;
use crate::backend::{
    Backend, CallResult, CollectiveKernels, Device, Failure, Gemm, RemoteAccess, Signals as _,
};
use crate::base::error::Result;
use crate::base::gemm_names::GemmTile;
use crate::gemm::call::Call;
use crate::gemm::matrix::{GemmElement, Operands};
use crate::gemm::operation::AllGatherGemm;
use crate::gemm::options::NAME;
use crate::gemm::plan::{GemmPart, GemmStep, layout};
use crate::gemm::side_streams::{SideStreams, enqueue_all};
use crate::gemm::streams::{GemmStream, PlanStep as _};
use crate::gemm::words::Signals;
use crate::group::nccl;
use crate::group::provider::Provider;
use crate::rank::memory_range::MemoryRange;
use crate::rank::submit::Submit;
use crate::stream::queue::Queue;

impl Queue {
    /// Enqueues an all-gather + GEMM. `C`, and the gathered `A` if the caller provides its buffer, are complete
    /// once this stream has passed this point. Collective on the device: every rank must enqueue it. Can be
    /// captured. The host does not wait.
    ///
    /// Later work of this stream may overwrite this rank's shard. A peer's gathered `A` is not touched before
    /// that peer has come to its next call.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if matrices do not have the shape that the operation was made for, or
    /// overlap what is written, or if more collectives than the operation's grid has room for could be under way at
    /// once ([`crate::Communicator::allow_concurrent_collectives`]); the backend's errors; the error that poisoned
    /// the communicator. If a peer dies or does not come within the deadline, [`crate::Stream::synchronize`] returns
    /// the error.
    pub fn all_gather_gemm<T: GemmElement>(
        &self,
        operation: &AllGatherGemm<T>,
        operands: &Operands<'_, T>,
    ) -> Result<()> {
        self.check_same(&operation.world, NAME)?;
        self.world().health.check()?;
        let call = Call::new(self, operation, operands)?;
        let mut steps = operation.steps.as_slice();
        if let [GemmStep::Gather, rest @ ..] = steps {
            call.gather()?;
            steps = rest;
        }
        if let Some(fits) = operation.fits {
            call.admit(fits)?;
        }
        let submit = self.submit(NAME);
        call.hold(&submit);
        if let Some(fits) = operation.fits {
            submit.follow(&operation.workspace().sequence, fits);
        }
        let enqueued = call.submit(&submit, steps);
        submit.end(enqueued)
    }
}

impl<T: GemmElement> Call<'_, T> {
    /// Admits the call to run beside the collectives of other streams.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if the operation's grid was chosen when fewer collectives were allowed at
    /// once, or if more than allowed could be under way.
    fn admit(&self, fits: u32) -> Result<()> {
        let (queue, operation) = (self.queue, self.operation);
        let residency = queue.world().collectives.selector.residency();
        residency
            .check_room(fits, "the operation's grid has", "make the operation again")
            .map_err(|message| queue.invalid(NAME, message))?;
        queue.admit(NAME, &operation.workspace().sequence)
    }

    /// Enqueues the steps. Joins all forked streams even after a failure: a capture cannot end while one is not
    /// joined.
    fn submit(&self, submit: &Submit<'_>, steps: &[GemmStep]) -> CallResult<()> {
        let shared = self.queue.world();
        let (operation, main) = (self.operation, submit.stream());
        let backend = submit.backend();
        // SAFETY: the stream is live.
        let captured = unsafe { backend.stream_capturing(main) }?;
        let workspace = operation.workspace();
        let deadline = operation.options.deadline;
        let watch = shared.watch(deadline.unwrap_or(shared.deadlines.wait));
        let run = Run {
            call: self,
            submit,
            backend,
            main,
            streams: workspace.streams.of(captured),
            signals: Signals {
                words: operation.words,
                allocation: workspace.signals.as_deref(),
                rank: shared.rank,
                world: shared.world,
                channel: operation.options.channel,
                watch,
            },
        };
        let (begun, done) = enqueue_all(steps, |step| {
            // SAFETY: the types guarantee that ranges are inside live allocations. Allocations of this
            // communicator are released only once its streams are idle and no graph keeps them; the maker of
            // the matrix vouches for other memory. All ranks do the steps of one plan, which was agreed on.
            unsafe { run.step(step) }
        });
        done.map_err(|mut failure: Failure| {
            // Peers count the steps that were begun, and this rank did not end them: its words are no longer in
            // step, whatever the reason.
            if begun && shared.world > 1 {
                failure.status = Status::CALL_FAILED;
            }
            failure
        })
    }
}

/// The context in which steps are enqueued.
struct Run<'a, T: GemmElement> {
    call: &'a Call<'a, T>,
    submit: &'a Submit<'a>,
    backend: &'a Backend,
    main: RawStream,
    streams: &'a SideStreams,
    signals: Signals<'a>,
}

impl<T: GemmElement> Run<'_, T> {
    /// Enqueues a step.
    ///
    /// # Safety
    /// All memory is live until the streams have passed this point.
    unsafe fn step(&self, step: &GemmStep) -> CallResult<()> {
        let (backend, signals) = (self.backend, &self.signals);
        let on = self.streams.raw(step.on(), self.main);
        if let Some(order) = step.order() {
            // SAFETY: guaranteed by the caller; the workspace has the streams and events.
            return unsafe { self.streams.order(backend, self.main, order) };
        }
        // SAFETY: guaranteed by the caller; side streams, events and words live as long as the operation's
        // workspace.
        unsafe {
            match *step {
                GemmStep::Start | GemmStep::End => backend.barrier(&signals.barrier(), on),
                GemmStep::Keep { .. } => self.place_shard(self.rank(), self.rank(), on),
                GemmStep::Get { peer, .. } => self.place_shard(peer, self.rank(), on),
                GemmStep::Put { peer, chunk, .. } => self.put(peer, chunk, on),
                GemmStep::Arrive { peer, chunk, .. } => {
                    let word = signals.arrival(peer, chunk);
                    backend.gathered_arrive(word, signals.epoch(), on)
                }
                GemmStep::Give { peer, .. } => {
                    backend.signal_give(&signals.give(peer), SignalPlacementCode::DEVICE, on)
                }
                GemmStep::Receive { peer, .. } => {
                    backend.signal_wait(&signals.receive(peer), SignalPlacementCode::DEVICE, on)
                }
                GemmStep::Turn { to, from, .. } => {
                    let (target, wait) = signals.turn(to, from);
                    backend.signal_step(&target, &wait, on)
                }
                GemmStep::Exchange { to, from, .. } => self.exchange(to, from, on),
                // The first step of its plan, done by the caller; done above.
                GemmStep::Gather
                | GemmStep::Fork { .. }
                | GemmStep::Join { .. }
                | GemmStep::Mark { .. }
                | GemmStep::Await { .. } => Ok(()),
                GemmStep::Spread { shard, .. } => self.spread(shard, on),
                GemmStep::Multiply { part, on: named } => self.multiply(part, named, on),
                GemmStep::Gathered { mode } => self.gathered(mode, on),
            }
        }
    }

    fn scale(&self) -> DeviceAddress {
        let scale = self.call.operands.scale;
        scale.map_or(DeviceAddress::NULL, |scale| scale.address(self.submit))
    }

    fn rank(&self) -> usize {
        self.call.operation.problem.rank
    }

    /// Returns the address of a byte of a range at a rank.
    fn at(&self, memory: &MemoryRange<'_>, rank: usize, bytes: u64) -> DeviceAddress {
        DeviceAddress(self.submit.address(memory, rank).0 + bytes)
    }

    /// Copies rows of a shard without gaps to their place in a gathered `A`.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn place(
        &self,
        (source, shard): (DeviceAddress, usize),
        at: usize,
        (first, rows): (u64, u64),
        direction: DirectionCode,
        on: RawStream,
    ) -> CallResult<()> {
        let division = &self.call.operation.problem.division;
        let bytes = division.columns(shard) * Call::<T>::ELEMENT;
        let element = (division.row(shard) + first) * division.k + division.column(shard);
        let destination = self.at(&self.call.gathered, at, element * Call::<T>::ELEMENT);
        let source = DeviceAddress(source.0 + first * bytes);
        if !division.by_columns() {
            let copy = Transfer {
                direction,
                ..Transfer::by_engine(destination, source, bytes * rows)
            };
            // SAFETY: guaranteed by the caller.
            return unsafe { self.backend.transfer(&copy, on) };
        }
        let copy = RowsCopy {
            direction,
            destination,
            destination_stride: division.k * Call::<T>::ELEMENT,
            source,
            source_stride: bytes,
            bytes,
            rows,
            reserved: 0,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.transfer_rows(&copy, on) }
    }

    /// Copies a rank's shard to the gathered `A` of a rank.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn place_shard(&self, shard: usize, at: usize, on: RawStream) -> CallResult<()> {
        let rows = self.call.operation.problem.division.rows(shard);
        let source = (self.at(&self.call.a, shard, 0), shard);
        let direction = match self.rank() {
            own if own != at => DirectionCode::PUT,
            own if own != shard => DirectionCode::GET,
            _ => DirectionCode::LOCAL,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.place(source, at, (0, rows), direction, on) }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn put(&self, peer: usize, chunk: u32, on: RawStream) -> CallResult<()> {
        let rows = self.call.operation.problem.chunk_rows(self.rank(), chunk);
        let source = (self.at(&self.call.a, self.rank(), 0), self.rank());
        // SAFETY: guaranteed by the caller.
        unsafe { self.place(source, peer, rows, DirectionCode::PUT, on) }
    }

    /// Returns the address at which a shard arrives as a block.
    fn block(&self, shard: usize) -> DeviceAddress {
        let operation = self.call.operation;
        let division = &operation.problem.division;
        let before: u64 = (0..shard).map(|rank| division.elements(rank)).sum();
        match &operation.workspace().staging {
            Some(staging) => staging.at(self.rank(), before * Call::<T>::ELEMENT),
            None => self.at(
                &self.call.gathered,
                self.rank(),
                before * Call::<T>::ELEMENT,
            ),
        }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn spread(&self, shard: usize, on: RawStream) -> CallResult<()> {
        let rows = self.call.operation.problem.division.rows(shard);
        let block = (self.block(shard), shard);
        // SAFETY: guaranteed by the caller.
        unsafe { self.place(block, self.rank(), (0, rows), DirectionCode::LOCAL, on) }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn exchange(&self, to: usize, from: usize, on: RawStream) -> CallResult<()> {
        let division = &self.call.operation.problem.division;
        let own = self.at(&self.call.a, self.rank(), 0);
        let bytes = |shard: usize| division.elements(shard) * Call::<T>::ELEMENT;
        let messages = [
            (to, true, own, bytes(self.rank())),
            (from, false, self.block(from), bytes(from)),
        ];
        let shared = self.call.queue.world();
        let nccl = shared.collectives.nccl.of(Provider::Nccl, true);
        let Some(nccl) = nccl else {
            return Err(Failure::new(
                Status::UNSUPPORTED,
                "nccl_call",
                "NCCL or RCCL is not open any more",
            ));
        };
        let messages = messages.into_iter().filter(|message| message.3 > 0);
        // SAFETY: guaranteed by the caller; NCCL was opened together with all ranks.
        unsafe { nccl::messages(self.backend, nccl, messages, on) }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn multiply(&self, part: GemmPart, named: GemmStream, on: RawStream) -> CallResult<()> {
        let Call {
            operation,
            operands,
            a,
            gathered,
            ..
        } = self.call;
        let problem = &operation.problem;
        let row = match part {
            GemmPart::Own => problem.division.row(problem.rank),
            GemmPart::Shard(rank) => problem.division.row(rank),
            GemmPart::Whole => 0,
        };
        let source = match part {
            GemmPart::Own => self.at(a, problem.rank, 0),
            _ => self.at(
                gathered,
                problem.rank,
                row * problem.division.k * Call::<T>::ELEMENT,
            ),
        };
        let c = row * operands.c.stride as u64 * size_of::<T::Output>() as u64;
        let matrices = GemmOperands {
            a: source,
            b: operands.b.address(self.submit),
            c: DeviceAddress(operands.c.address(self.submit).0 + c),
            bias: operands
                .bias
                .map_or(DeviceAddress::NULL, |bias| bias.address(self.submit)),
            addend: DeviceAddress::NULL,
            scale: self.scale(),
        };
        let layout = layout(&operation.shape, T::TYPE, problem, part);
        let gemms = &operation.workspace().gemms;
        // SAFETY: guaranteed by the caller.
        unsafe { gemms.multiply(self.backend, (&layout, named), &matrices, on) }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn gathered(&self, mode: GatherMode, on: RawStream) -> CallResult<()> {
        let Call {
            operation,
            operands,
            a,
            gathered,
            ..
        } = self.call;
        let (problem, limits) = (&operation.problem, &operation.limits);
        let mut arguments = GatheredGemmArguments {
            group: CollectiveGroup {
                watch: self.signals.watch,
                slots: [DeviceAddress::NULL; MAX_RANKS],
                packet_bytes: 0,
                dependents: DependentsCode::ANSWERED,
                rank: problem.rank as u32,
                world: problem.world as u32,
                slot: operation.options.channel,
                operation: CollectiveOperationCode::ALL_GATHER_GEMM,
                members: [0; MAX_RANKS],
            },
            sources: [DeviceAddress::NULL; MAX_RANKS],
            gathered: [DeviceAddress::NULL; MAX_RANKS],
            arrivals: [DeviceAddress::NULL; MAX_RANKS],
            epoch: match mode {
                GatherMode::PUSH_AT_ONCE => self.signals.calls(),
                _ => self.signals.epoch(),
            },
            b: operands.b.address(self.submit),
            c: operands.c.address(self.submit),
            bias: operands
                .bias
                .map_or(DeviceAddress::NULL, |bias| bias.address(self.submit)),
            shape: operation.layout(),
            shard: problem.division.shard,
            chunk: problem.chunk,
            chunks: problem.chunks,
            sharding: problem.division.sharding.into(),
            mode,
            movers: match mode {
                GatherMode::WAIT => 0,
                GatherMode::PUSH_AT_ONCE => problem.chunks,
                _ => limits.movers,
            },
            keep: (problem.keep && mode != GatherMode::WAIT).into(),
            tile: operation.options.tile.map_or(0, GemmTile::code),
            partials: DeviceAddress::NULL,
            partial_bytes: limits.partial_bytes,
            quota: 0,
            reserved: 0,
            scale: self.scale(),
        };
        if let Some(partials) = &operation.workspace().partials {
            arguments.partials = partials.at(problem.rank, 0);
        }
        for rank in 0..problem.world {
            arguments.group.members[rank] = rank as u8;
            arguments.sources[rank] = self.at(a, rank, 0);
            arguments.gathered[rank] = self.at(gathered, rank, 0);
            arguments.arrivals[rank] = self.signals.arrivals(rank);
            if mode == GatherMode::PUSH_AT_ONCE {
                arguments.group.slots[rank] = self.signals.entered(rank);
            }
        }
        let blocks = operation.options.blocks.unwrap_or(limits.blocks);
        let grid = Geometry {
            blocks: [blocks, 1, 1],
            threads: [limits.threads, 1, 1],
            shared_memory: 0,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.gathered_gemm(&arguments, &grid, on) }
    }
}
