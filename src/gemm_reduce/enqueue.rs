//! Submission of the steps of a call.
//!
//! Outside of a capture, nothing here allocates or locks, unless calls are compared
//! ([`crate::Configuration::check_calls`]).

use crate::backend::abi::*;
use crate::backend::{
    Backend, CallResult, CollectiveKernels as _, Device, Failure, Gemm as _, RemoteAccess,
    Signals as _,
};
use crate::base::error::Result;
use crate::base::gemm_names::GemmTransport;
use crate::base::gemm_reduce_names::Reduction;
use crate::collectives::norm::{NormElement, RowNorm};
use crate::gemm::matrix::GemmElement;
use crate::gemm::side_streams::{SideStreams, enqueue_all};
use crate::gemm::streams::{GemmStream, PlanStep as _};
use crate::gemm_reduce::call::{Call, GemmReduceOperands, collective_options};
use crate::gemm_reduce::operation::{GemmReduce, layout};
use crate::gemm_reduce::plan::{GemmBlock, GemmReduceStep};
use crate::gemm_reduce::words::Signals;
use crate::health::record::RingCall;
use crate::rank::allocation::Allocation;
use crate::rank::memory_range::MemoryRange;
use crate::rank::submit::Submit;
use crate::stream::queue::Queue;
use std::sync::Arc;

impl Queue {
    /// Enqueues a GEMM + reduce-scatter or GEMM + all-reduce. `C` is complete once this stream has passed this point.
    /// Collective on the device: every rank must enqueue it. Can be captured. The host does not wait.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if matrices do not have the shape that the operation was made for, or `C` overlaps
    /// another; the backend's errors; of a baseline those of the collective; the error that poisoned the communicator. If a
    /// peer dies or does not come within the deadline, [`crate::Stream::synchronize`] returns the error.
    pub fn gemm_reduce<T: GemmElement>(
        &self,
        operation: &GemmReduce<T>,
        operands: &GemmReduceOperands<'_, T>,
    ) -> Result<()> {
        let name = operation.problem.reduction.name();
        self.check_same(&operation.world, name)?;
        self.world().health.check()?;
        if operation.problem.reduction == Reduction::Norm {
            return Err(self.invalid(
                name,
                "the operation was made with a norm: call `gemm_reduce_norm`",
            ));
        }
        let call = Call::new(self, operation, operands)?;
        if let Some(kernel) = &operation.kernel {
            kernel.admit(self, name, &operation.workspace().sequence)?;
        }
        call.enqueue()?;
        match operation.steps.last() {
            Some(GemmReduceStep::Reduce) => call.reduce(),
            _ => Ok(()),
        }
    }

    /// Enqueues a GEMM + all-reduce of rows with a residual and a norm: `C` gets the norm of each row of the sum of all ranks'
    /// `A · B` and of the residual. Each rank's product is rounded once, then the sum with the residual, then the norm. Collective
    /// on the device: every rank must enqueue it. Can be captured. The host does not wait.
    ///
    /// # Errors
    /// As [`Queue::gemm_reduce`] and [`crate::Collectives::all_reduce_norm`]. The GEMM may have been enqueued before the norm's
    /// arguments are refused; nothing but the operation's own memory has changed then.
    pub fn gemm_reduce_norm<'a, T: GemmElement + NormElement>(
        &self,
        operation: &'a GemmReduce<T>,
        operands: &'a GemmReduceOperands<'a, T>,
        norm: &RowNorm<'a, T>,
    ) -> Result<()> {
        let name = operation.problem.reduction.name();
        self.check_same(&operation.world, name)?;
        self.world().health.check()?;
        let product = match &operation.workspace().inbox {
            Some(product) if operation.problem.reduction == Reduction::Norm => product,
            _ => {
                let message = "the operation was made without a norm: call `gemm_reduce`";
                return Err(self.invalid(name, message));
            }
        };
        let call = Call::new(self, operation, operands)?;
        let source = MemoryRange::new(product, 0, call.c.bytes());
        let request = norm.request(self, name, (call.c, source), operation.shape.n)?;
        call.enqueue()?;
        self.all_reduce_norm_of(&request, &collective_options(operation))
    }
}

impl<T: GemmElement> Call<'_, T> {
    /// Enqueues all steps but the collective.
    fn enqueue(&self) -> Result<()> {
        let operation = self.operation;
        let submit = self.queue.submit(operation.problem.reduction.name());
        self.hold(&submit);
        let sequence = &operation.workspace().sequence;
        if let Some(kernel) = &operation.kernel {
            submit.follow(sequence, kernel.fits);
        } else if operation.problem.is_pipeline() {
            submit.follow(sequence, u32::MAX);
        }
        let enqueued = self.submit(&submit);
        submit.end(enqueued)
    }

    /// Adds up all ranks' results.
    fn reduce(&self) -> Result<()> {
        let operation = self.operation;
        let (code, source) = match &operation.workspace().inbox {
            Some(results) => (
                CollectiveOperationCode::REDUCE_SCATTER,
                MemoryRange::new(results, 0, self.c.bytes() * operation.problem.world as u64),
            ),
            None => (CollectiveOperationCode::ALL_REDUCE, self.c),
        };
        let options = collective_options(operation);
        self.queue
            .add_up(code, self.c, source, T::TYPE.into(), &options)
    }

    /// Enqueues the steps. Joins all forked streams even after a failure: a capture cannot end while one is not
    /// joined.
    fn submit(&self, submit: &Submit<'_>) -> CallResult<()> {
        let shared = self.queue.world();
        let (operation, main) = (self.operation, submit.stream());
        let backend = submit.backend();
        let workspace = operation.workspace();
        // SAFETY: the stream is live.
        let captured = unsafe { backend.stream_capturing(main) }?;
        let deadline = operation.options.deadline;
        let watch = shared.watch(deadline.unwrap_or(shared.deadlines.wait));
        let run = Run {
            call: self,
            submit,
            backend,
            main,
            watch,
            streams: workspace.streams.of(captured),
            signals: workspace.signals.as_deref().map(|allocation| Signals {
                words: operation.words,
                allocation,
                rank: shared.rank,
                next: operation.problem.next(),
                previous: operation.problem.previous(),
                slot: match operation.problem.reduction {
                    Reduction::Scatter => RingCall::GemmReduceScatter,
                    _ => RingCall::GemmAllReduce,
                }
                .slot(operation.options.channel),
                watch,
            }),
        };
        let (begun, done) = enqueue_all(&operation.steps, |step| {
            // SAFETY: the types guarantee that ranges are inside live allocations. Allocations of this
            // communicator are released only once its streams are idle and no graph keeps them; the maker of
            // the matrix vouches for other memory. All ranks do the steps of one plan, which was agreed on.
            unsafe { run.step(step) }
        });
        done.map_err(|mut failure: Failure| {
            // Peers count the steps that were begun, and this rank did not end them: its words are no longer in
            // step, whatever the reason.
            if begun && operation.problem.is_pipeline() {
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
    watch: Watch,
    streams: &'a SideStreams,
    /// `None` if no step signals.
    signals: Option<Signals<'a>>,
}

impl<T: GemmElement> Run<'_, T> {
    /// Enqueues a step.
    ///
    /// # Safety
    /// All memory is live until the streams have passed this point.
    unsafe fn step(&self, step: &GemmReduceStep) -> CallResult<()> {
        let backend = self.backend;
        let on = self.streams.raw(step.on(), self.main);
        if let Some(order) = step.order() {
            // SAFETY: guaranteed by the caller; the workspace has the streams and events.
            return unsafe { self.streams.order(backend, self.main, order) };
        }
        let device = SignalPlacementCode::DEVICE;
        // SAFETY: guaranteed by the caller; side streams, events and words live as long as the operation's
        // workspace.
        unsafe {
            match *step {
                GemmReduceStep::Start { .. } => backend.barrier(&self.signals()?.barrier(), on),
                GemmReduceStep::MultiplyAll => self.multiply(None, GemmStream::Main, on),
                GemmReduceStep::Multiply { block, on: named } => {
                    self.multiply(Some(block), named, on)
                }
                GemmReduceStep::PutSum { block, .. } => {
                    let next = self.call.operation.problem.next();
                    let from = self.slot(self.workspace_of(Memory::Outgoing)?, self.rank(), block);
                    let block = onward(block);
                    let to = self.slot(self.workspace_of(Memory::Inbox)?, next, block);
                    self.copy(to, from, self.bytes(block), DirectionCode::PUT, on)
                }
                GemmReduceStep::GiveSum { block, .. } => {
                    let target = self.signals()?.give_sum(block);
                    match self.call.operation.problem.transport {
                        GemmTransport::Kernel if block.hop == 0 => {
                            backend.signal_give(&target, device, on)
                        }
                        _ => self.arrive(&target, block, on),
                    }
                }
                GemmReduceStep::ReceiveSum { block, .. } => {
                    let signals = self.signals()?;
                    backend.signal_wait(&signals.receive_sum(block), device, on)?;
                    if !self.call.operation.problem.is_passed_on(block) {
                        return Ok(());
                    }
                    let (word, kept) = signals.arrived_sum(block);
                    backend.gathered_arrive(kept, word, on)
                }
                GemmReduceStep::PutBlock { chunk, peer, .. } => {
                    let (first, rows) = self.call.operation.problem.block_rows(self.rank(), chunk);
                    let [to, from] = [peer, self.rank()].map(|rank| self.result(rank, first));
                    let bytes = rows * self.row_bytes();
                    self.copy(to?, from?, bytes, DirectionCode::PUT, on)
                }
                GemmReduceStep::GiveBlock { chunk, peer, .. } => {
                    let block = self.call.operation.problem.own_block(chunk);
                    self.arrive(&self.signals()?.give_block(peer, chunk), block, on)
                }
                GemmReduceStep::ReceiveBlock { chunk, peer } => {
                    backend.signal_wait(&self.signals()?.receive_block(peer, chunk), device, on)
                }
                GemmReduceStep::Reduced => self.reduced(on),
                GemmReduceStep::Copy => {
                    let to = self.submit.address(&self.call.c, self.rank());
                    let from = self.result(self.rank(), 0)?;
                    self.copy(to, from, self.call.c.bytes(), DirectionCode::LOCAL, on)
                }
                // Done by the caller, after all other steps; done above.
                GemmReduceStep::Reduce
                | GemmReduceStep::Fork { .. }
                | GemmReduceStep::Join { .. }
                | GemmReduceStep::Mark { .. }
                | GemmReduceStep::Await { .. } => Ok(()),
            }
        }
    }

    fn rank(&self) -> usize {
        self.call.operation.problem.rank
    }

    fn signals(&self) -> CallResult<&Signals<'_>> {
        self.signals.as_ref().ok_or_else(|| absent("words"))
    }

    /// Returns the operation's memory of a kind.
    fn workspace_of(&self, memory: Memory) -> CallResult<&Arc<Allocation>> {
        let workspace = self.call.operation.workspace();
        let (found, name) = match memory {
            Memory::Inbox => (&workspace.inbox, "inbox"),
            Memory::Outgoing => (&workspace.outgoing, "outgoing sums"),
            Memory::Result => (&workspace.result, "result"),
        };
        found.as_ref().ok_or_else(|| absent(name))
    }

    fn row_bytes(&self) -> u64 {
        self.call.operation.shape.n as u64 * Call::<T>::ELEMENT
    }

    fn bytes(&self, block: GemmBlock) -> u64 {
        let problem = &self.call.operation.problem;
        problem.block_rows(block.owner, block.chunk).1 * self.row_bytes()
    }

    /// Returns the address at a rank of the place of a block's sum, in memory with a part for each hop: for what arrives from
    /// hop 1 on, for what is sent up to the one before the last.
    fn slot(&self, memory: &Arc<Allocation>, rank: usize, block: GemmBlock) -> DeviceAddress {
        let problem = &self.call.operation.problem;
        let hop = block.hop as u64 % (problem.world as u64 - 1);
        let row = hop * problem.shard + u64::from(block.chunk) * problem.chunk;
        memory.at(rank, row * self.row_bytes())
    }

    /// Returns the address of a row of the whole sum at a rank.
    fn result(&self, rank: usize, row: u64) -> CallResult<DeviceAddress> {
        let offset = row * self.row_bytes();
        if self.call.operation.problem.in_place {
            return Ok(DeviceAddress(
                self.submit.address(&self.call.c, rank).0 + offset,
            ));
        }
        Ok(self.workspace_of(Memory::Result)?.at(rank, offset))
    }

    /// Returns the address to which a GEMM of this rank writes: of all rows without a block.
    fn destination(&self, block: Option<GemmBlock>) -> CallResult<DeviceAddress> {
        let problem = &self.call.operation.problem;
        let own = || self.submit.address(&self.call.c, self.rank());
        match block {
            None => Ok(match &self.call.operation.workspace().inbox {
                Some(results) => results.at(self.rank(), 0),
                None => own(),
            }),
            Some(block) if problem.is_last(block) => {
                let (first, _) = problem.block_rows(block.owner, block.chunk);
                match problem.reduction {
                    Reduction::All | Reduction::Norm => self.result(self.rank(), first),
                    Reduction::Scatter => {
                        let row = first - self.rank() as u64 * problem.shard;
                        Ok(DeviceAddress(own().0 + row * self.row_bytes()))
                    }
                }
            }
            Some(block) if problem.transport == GemmTransport::Kernel => {
                let inbox = self.workspace_of(Memory::Inbox)?;
                Ok(self.slot(inbox, problem.next(), onward(block)))
            }
            Some(block) => Ok(self.slot(self.workspace_of(Memory::Outgoing)?, self.rank(), block)),
        }
    }

    /// Multiplies the rows of a block, or all.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn multiply(
        &self,
        block: Option<GemmBlock>,
        named: GemmStream,
        on: RawStream,
    ) -> CallResult<()> {
        let Call {
            operation,
            operands,
            ..
        } = self.call;
        let (shape, problem) = (&operation.shape, &operation.problem);
        let first = block.map_or(0, |block| problem.block_rows(block.owner, block.chunk).0);
        let layout = layout(shape, T::TYPE, problem, block);
        let a = first * shape.a_stride() as u64 * Call::<T>::ELEMENT;
        let bias = operands.bias.filter(|_| layout.bias != 0);
        let addend = match block.filter(|_| layout.addend != 0) {
            Some(block) => self.slot(self.workspace_of(Memory::Inbox)?, self.rank(), block),
            None => DeviceAddress::NULL,
        };
        let matrices = GemmOperands {
            a: DeviceAddress(operands.a.address(self.submit).0 + a),
            b: operands.b.address(self.submit),
            c: self.destination(block)?,
            bias: bias.map_or(DeviceAddress::NULL, |bias| bias.address(self.submit)),
            addend,
            scale: DeviceAddress::NULL,
        };
        let gemms = &operation.workspace().gemms;
        // SAFETY: guaranteed by the caller.
        unsafe { gemms.multiply(self.backend, (&layout, named), &matrices, on) }
    }

    /// Multiplies and adds up all ranks' products by the fused kernel.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn reduced(&self, on: RawStream) -> CallResult<()> {
        let Call {
            operation,
            operands,
            ..
        } = self.call;
        let problem = &operation.problem;
        let kernel = operation.kernel.as_ref();
        let kernel = kernel.ok_or_else(|| absent("kernel"))?;
        let workspace = operation.workspace();
        let words = workspace.signals.as_ref().ok_or_else(|| absent("words"))?;
        let inbox = self.workspace_of(Memory::Inbox)?;
        let all = problem.reduction == Reduction::All;
        let mut arguments = ReducedGemmArguments {
            group: kernel.group(problem, self.watch, operation.options.channel),
            inboxes: [DeviceAddress::NULL; MAX_RANKS],
            words: [DeviceAddress::NULL; MAX_RANKS],
            results: [DeviceAddress::NULL; MAX_RANKS],
            a: operands.a.address(self.submit),
            b: operands.b.address(self.submit),
            c: match all {
                true => self.result(self.rank(), 0)?,
                false => self.submit.address(&self.call.c, self.rank()),
            },
            bias: operands
                .bias
                .map_or(DeviceAddress::NULL, |bias| bias.address(self.submit)),
            shape: (operation.shape).layout(T::TYPE, problem.rows, (operation.shape.bias, false)),
            shard: problem.shard,
            mode: kernel.mode,
            all: all.into(),
            partial: operation.options.partials.code(T::TYPE),
            quota: 0,
        };
        for rank in 0..problem.world {
            arguments.inboxes[rank] = inbox.at(rank, 0);
            arguments.words[rank] = words.at(rank, 0);
            if all {
                arguments.results[rank] = self.result(rank, 0)?;
            }
        }
        // SAFETY: guaranteed by the caller. All ranks have agreed on the limits, and the memory has the sizes that they name.
        unsafe { self.backend.reduced_gemm(&arguments, &kernel.grid(), on) }
    }

    /// Raises a word for the sum of a block, by the copy engine: while GEMMs run, a kernel might not find room before the last of
    /// them ends. The first rank of a sum raises it to the number of barriers, of which each call has one; the others to what had
    /// arrived when they added.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn arrive(
        &self,
        target: &SignalTarget,
        block: GemmBlock,
        on: RawStream,
    ) -> CallResult<()> {
        let signals = self.signals()?;
        let number = match block.hop {
            0 => signals.barrier().epoch,
            _ => signals.arrived_sum(block).1,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.gathered_arrive(target.word, number, on) }
    }

    /// Copies bytes by the copy engine.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn copy(
        &self,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
        direction: DirectionCode,
        on: RawStream,
    ) -> CallResult<()> {
        let copy = Transfer {
            direction,
            ..Transfer::by_engine(to, from, bytes)
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.transfer(&copy, on) }
    }
}

/// A part of the operation's memory.
enum Memory {
    Inbox,
    Outgoing,
    Result,
}

/// Returns a block as the next rank adds to it.
fn onward(block: GemmBlock) -> GemmBlock {
    GemmBlock {
        hop: block.hop + 1,
        ..block
    }
}

#[cold]
fn absent(what: &str) -> Failure {
    Failure::new(
        Status::INVALID_ARGUMENT,
        "gemm_reduce",
        format!("the operation has no {what}; this is a bug in symmem, please report it"),
    )
}
