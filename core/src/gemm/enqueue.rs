//! A call: checks its matrices and enqueues its steps.
//!
//! Nothing here allocates or locks outside of a capture, unless calls are compared
//! ([`crate::Configuration::check_calls`]).

use super::matrix::{GemmElement, Matrix, Operands};
use super::operation::{AllGatherGemm, NAME, rows_of};
use super::options::{GemmAlgorithm, GemmTransport};
use super::plan::{On, Part, Step};
use super::workspace::{Sides, Signals};
use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Collectives, Device, Gemm, RemoteAccess, Signals as _};
use crate::buffer::BufferRange;
use crate::collectives::{CollectiveOptions, GatherCall, Provider, keep};
use crate::communicator::allocation::Allocation;
use crate::communicator::shared::Kept;
use crate::error::Result;
use crate::stream::Stream;
use std::sync::Arc;

/// Where something symmetric lies: the same offset at all ranks.
#[derive(Clone, Copy)]
struct Place<'a> {
    allocation: &'a Arc<Allocation>,
    offset: u64,
}

impl Place<'_> {
    fn at(&self, rank: usize, bytes: u64) -> DeviceAddress {
        self.allocation.at(rank, self.offset + bytes)
    }
}

impl Stream {
    /// Enqueues a product whose `A` is gathered meanwhile: `C` is there, and so is the gathered `A` where the
    /// caller has given a buffer for it, once this stream has passed this point. Collective on the device.
    /// Capturable.
    ///
    /// This rank's shard may be written again after it; a peer's gathered `A` is not touched before that peer
    /// has come to its next call.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if matrices do not have the shape that the operation was made for, or
    /// overlap what is written; the backend's; what poisoned the communicator. A peer that does not come
    /// within the deadline, or dies, is an error of [`Stream::synchronize`].
    pub fn all_gather_gemm<T: GemmElement>(
        &self,
        operation: &AllGatherGemm<T>,
        operands: &Operands<'_, T>,
    ) -> Result<()> {
        let shared = self.shared();
        self.check_same(&operation.shared, NAME)?;
        shared.health.check()?;
        let call = Call::new(self, operation, operands)?;
        let mut steps = operation.steps.as_slice();
        if let [Step::Gather, rest @ ..] = steps {
            call.gather()?;
            steps = rest;
        } else {
            call.compare()?;
        }
        self.enqueue(|| call.uses(), || call.submit(steps))
            .map_err(|failure| shared.failed(NAME, failure))
    }
}

struct Call<'a, T: GemmElement> {
    stream: &'a Stream,
    operation: &'a AllGatherGemm<T>,
    operands: &'a Operands<'a, T>,
    /// This rank's shard, and its peers'.
    a: Place<'a>,
    /// The gathered `A`; this rank's shard where nothing is gathered.
    gathered: Place<'a>,
}

impl<'a, T: GemmElement> Call<'a, T> {
    const ELEMENT: u64 = size_of::<T>() as u64;

    fn new(
        stream: &'a Stream,
        operation: &'a AllGatherGemm<T>,
        operands: &'a Operands<'a, T>,
    ) -> Result<Self> {
        let shape = &operation.shape;
        let invalid = |message: String| Err(stream.invalid(NAME, message));
        let place = |range: BufferRange<'a, T>, what: &str, expected: usize| {
            stream.check_same(range.buffer().shared(), NAME)?;
            if range.len() != expected {
                let found = range.len();
                let message = format!("{what} has {found} elements; this shape takes {expected}");
                return Err(stream.invalid(NAME, message));
            }
            Ok(Place {
                allocation: range.buffer().allocation(),
                offset: range.byte_offset(),
            })
        };
        let world = operation.problem.world;
        let a = place(operands.a, "the shard of A", shape.shard_elements(world))?;
        let gathered = match (operands.gathered, operation.options.gathered) {
            (Some(range), true) => place(range, "the gathered A", shape.gathered_elements())?,
            (None, false) => match &operation.workspace().gathered {
                Some(allocation) => Place {
                    allocation,
                    offset: 0,
                },
                None => a,
            },
            (given, _) => {
                let (given, expected) = match given {
                    Some(_) => ("is", "made without"),
                    None => ("is no", "made for"),
                };
                return invalid(format!(
                    "there {given} buffer for the gathered A; the operation was {expected} one"
                ));
            }
        };
        for (what, matrix, expected) in [
            (
                "B",
                Some(&operands.b),
                Some((shape.k, shape.n, shape.b_stride, shape.b_order)),
            ),
            (
                "C",
                Some(&operands.c),
                Some((shape.m, shape.n, shape.c_stride, MatrixOrder::ROWS)),
            ),
            (
                "the bias",
                operands.bias.as_ref(),
                shape.bias.then_some((1, shape.n, None, MatrixOrder::ROWS)),
            ),
        ] {
            check_matrix(stream, what, matrix, expected)?;
        }
        let call = Self {
            stream,
            operation,
            operands,
            a,
            gathered,
        };
        call.check_overlap()?;
        Ok(call)
    }

    /// Refuses what is written where something else is.
    fn check_overlap(&self) -> Result<()> {
        let (rank, operands) = (self.operation.problem.rank, self.operands);
        let of = |place: Place<'_>, elements: usize| {
            let start = place.at(rank, 0).0;
            start..start + elements as u64 * Self::ELEMENT
        };
        let a = of(self.a, operands.a.len());
        let gathered = operands
            .gathered
            .map(|range| of(self.gathered, range.len()));
        let b = operands.b.extent();
        let bias = operands.bias.map(|bias| bias.extent());
        let c = operands.c.extent();
        let written = [("C", Some(&c)), ("the gathered A", gathered.as_ref())];
        let all = [
            ("the shard of A", Some(&a)),
            ("B", Some(&b)),
            ("the bias", bias.as_ref()),
            ("the gathered A", gathered.as_ref()),
        ];
        for (written, one) in written {
            for (what, other) in all {
                let (Some(one), Some(other)) = (one, other) else {
                    continue;
                };
                if written != what && one.start < other.end && other.start < one.end {
                    let message = format!("{written}, which is written, overlaps {what}");
                    return Err(self.stream.invalid(NAME, message));
                }
            }
        }
        Ok(())
    }

    /// What a graph has to keep.
    fn uses(&self) -> Vec<Kept> {
        let mut uses = keep(&[self.a.allocation, self.gathered.allocation]);
        uses.push(self.operation.workspace().clone());
        let Operands { b, c, bias, .. } = self.operands;
        let matrices = [Some(b), Some(c), bias.as_ref()].into_iter().flatten();
        let buffers = matrices.filter_map(|matrix| matrix.buffer);
        uses.extend(buffers.map(|(_, allocation)| allocation.clone() as Kept));
        uses
    }

    /// In debug mode compares the call with those of the other ranks.
    fn compare(&self) -> Result<()> {
        let problem = &self.operation.problem;
        if problem.world == 1 || !self.stream.shared().collectives().check_calls {
            return Ok(());
        }
        let whose = |place: Place<'_>| {
            let (offset, number) = (place.offset, place.allocation.number);
            format!("byte {offset} of buffer {number}")
        };
        let shape = &self.operation.shape;
        self.stream.compare_call(
            NAME,
            &self.collective_options(),
            &[
                ("the shape", format!("{shape:?}")),
                ("the shard of A", whose(self.a)),
                ("the gathered A", whose(self.gathered)),
            ],
        )
    }

    fn collective_options(&self) -> CollectiveOptions<'static> {
        let vendor = self.operation.problem.transport == GemmTransport::Vendor
            && self.operation.problem.algorithm == GemmAlgorithm::Baseline;
        CollectiveOptions {
            provider: if vendor {
                Provider::Vendor
            } else {
                Provider::Own
            },
            channel: self.operation.options.channel,
            deadline: self.operation.options.deadline,
            ..CollectiveOptions::default()
        }
    }

    /// Gathers all shards by a collective.
    fn gather(&self) -> Result<()> {
        let problem = &self.operation.problem;
        let mut counts = [0; MAX_RANKS];
        for (rank, count) in counts.iter_mut().enumerate().take(problem.world) {
            *count = problem.division.elements(rank) as usize;
        }
        let staging = self.operation.workspace().staging.as_ref();
        let (allocation, offset) = match staging {
            Some(staging) => (staging, 0),
            None => (self.gathered.allocation, self.gathered.offset),
        };
        self.stream.gather_shards(&GatherCall {
            destination: (allocation, offset),
            source: (self.a.allocation, self.a.offset),
            counts: &counts[..problem.world],
            element_bytes: Self::ELEMENT,
            options: &self.collective_options(),
        })
    }

    /// Enqueues the steps. After a failure streams are joined all the same: a capture could not be ended with
    /// one that is not.
    fn submit(&self, steps: &[Step]) -> CallResult<()> {
        let shared = self.stream.shared();
        let (operation, main) = (self.operation, self.stream.raw_handle());
        let backend: &Backend = &shared.backend;
        // SAFETY: the stream is live.
        let captured = unsafe { backend.stream_capturing(main) }? != 0;
        let workspace = operation.workspace();
        let deadline = operation.options.deadline;
        let watch = shared
            .health
            .watch(deadline.unwrap_or(shared.options.deadline));
        // Where there is no step that needs them there are none: any allocation will do.
        let signals = workspace.signals.as_ref().unwrap_or(self.a.allocation);
        let run = Run {
            call: self,
            backend,
            main,
            sides: &workspace.sides[usize::from(captured)],
            signals: Signals {
                words: operation.words,
                allocation: signals,
                rank: shared.rank,
                world: shared.world,
                channel: operation.options.channel,
                watch,
            },
        };
        let mut forked = [0u128; 2];
        let mut done = Ok(());
        for step in steps {
            match *step {
                Step::Fork { on } if done.is_ok() => {
                    let (bits, bit) = bits(&mut forked, on);
                    *bits |= bit;
                }
                Step::Join { on } => {
                    let (bits, bit) = bits(&mut forked, on);
                    if *bits & bit == 0 {
                        continue;
                    }
                }
                _ if done.is_err() => continue,
                _ => {}
            }
            // SAFETY: ranges are inside live allocations, by their types, and those of this communicator are
            // released only once its streams are idle and no graph keeps them; other memory by the word of
            // whoever made the matrix. All ranks do the steps of one plan, which has been agreed on.
            let step = unsafe { run.step(step) };
            done = done.and(step);
        }
        done
    }
}

/// Where it is noted whether a stream was forked.
fn bits(forked: &mut [u128; 2], on: On) -> (&mut u128, u128) {
    match on {
        On::Main => (&mut forked[0], 0),
        On::Copies(index) => (&mut forked[0], 1 << (index % 128)),
        On::Products(index) => (&mut forked[1], 1 << (index % 128)),
    }
}

fn check_matrix<T: GemmElement>(
    stream: &Stream,
    what: &str,
    matrix: Option<&Matrix<'_, T>>,
    expected: Option<(usize, usize, Option<usize>, MatrixOrder)>,
) -> Result<()> {
    let invalid = |message: String| Err(stream.invalid(NAME, message));
    let (matrix, (rows, columns, stride, order)) = match (matrix, expected) {
        (Some(matrix), Some(expected)) => (matrix, expected),
        (None, None) => return Ok(()),
        (Some(_), None) => return invalid(format!("the operation was made without {what}")),
        (None, Some(_)) => return invalid(format!("the operation was made with {what}")),
    };
    if let Some((shared, _)) = matrix.buffer {
        stream.check_same(shared, NAME)?;
    }
    let width = match order {
        MatrixOrder::COLUMNS => rows,
        _ => columns,
    };
    let stride = stride.unwrap_or(width);
    // The stride of one line means nothing.
    let single = what == "the bias";
    let alike = (matrix.rows, matrix.columns) == (rows, columns)
        && (single || (matrix.order, matrix.stride) == (order, stride));
    if !alike {
        return invalid(format!(
            "{what} is {matrix:?}; the operation was made for {rows} x {columns}, {}, stride {stride}",
            order.name()
        ));
    }
    if !matrix.address.0.is_multiple_of(size_of::<T>() as u64) {
        return invalid(format!("{what} is not aligned to its elements"));
    }
    Ok(())
}

/// What steps are enqueued with.
struct Run<'a, T: GemmElement> {
    call: &'a Call<'a, T>,
    backend: &'a Backend,
    main: RawStream,
    sides: &'a Sides,
    signals: Signals<'a>,
}

impl<T: GemmElement> Run<'_, T> {
    const ELEMENT: u64 = size_of::<T>() as u64;

    fn raw(&self, on: On) -> RawStream {
        self.sides.side(on).map_or(self.main, |side| side.raw())
    }

    /// Enqueues a step.
    ///
    /// # Safety
    /// All memory is live until the streams have passed this point.
    unsafe fn step(&self, step: &Step) -> CallResult<()> {
        let (backend, signals) = (self.backend, &self.signals);
        let on = self.raw(step.on());
        // SAFETY: the caller's word; side streams and events live as long as the operation's workspace, and so
        // do its words.
        unsafe {
            match *step {
                Step::Start | Step::End => backend.barrier(&signals.barrier(), on),
                Step::Fork { on } => match self.sides.side(on) {
                    Some(side) => side.fork(backend, self.main),
                    None => Ok(()),
                },
                Step::Join { on } => match self.sides.side(on) {
                    Some(side) => side.join(backend, self.main),
                    None => Ok(()),
                },
                Step::Keep { .. } => self.place_shard(self.rank(), self.rank(), on),
                Step::Get { peer, .. } => self.place_shard(peer, self.rank(), on),
                Step::Put { peer, chunk, .. } => self.put(peer, chunk, on),
                Step::Arrive { peer, chunk, .. } => {
                    let word = signals.arrival(peer, chunk);
                    backend.gathered_arrive(word, signals.epoch(), on)
                }
                Step::Give { peer, .. } => {
                    backend.signal_give(&signals.give(peer), SignalPlacement::DEVICE, on)
                }
                Step::Receive { peer, .. } => {
                    backend.signal_wait(&signals.receive(peer), SignalPlacement::DEVICE, on)
                }
                Step::Turn { to, from, .. } => {
                    let (target, wait) = signals.turn(to, from);
                    backend.signal_step(&target, &wait, on)
                }
                Step::Exchange { to, from, .. } => self.exchange(to, from, on),
                Step::Mark { event, .. } => backend.event_record(self.sides.events[event], on),
                Step::Await { event, .. } => {
                    backend.stream_wait_event(on, self.sides.events[event])
                }
                // The first step of its plan, done before.
                Step::Gather => Ok(()),
                Step::Spread { shard, .. } => self.spread(shard, on),
                Step::Multiply { part, on: named } => self.multiply(part, named, on),
                Step::Gathered { mode } => self.gathered(mode, on),
            }
        }
    }

    fn rank(&self) -> usize {
        self.call.operation.problem.rank
    }

    /// Copies rows of a shard that lies without gaps to where they belong in a gathered `A`.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn place(
        &self,
        (source, shard): (DeviceAddress, usize),
        at: usize,
        (first, rows): (u64, u64),
        on: RawStream,
    ) -> CallResult<()> {
        let division = &self.call.operation.problem.division;
        let bytes = division.columns(shard) * Self::ELEMENT;
        let element = (division.row(shard) + first) * division.k + division.column(shard);
        let destination = self.call.gathered.at(at, element * Self::ELEMENT);
        let source = DeviceAddress(source.0 + first * bytes);
        if !division.by_columns() {
            let copy = Transfer::by_engine(destination, source, bytes * rows);
            // SAFETY: the caller's word.
            return unsafe { self.backend.transfer(&copy, on) };
        }
        let copy = RowsCopy {
            destination,
            destination_stride: division.k * Self::ELEMENT,
            source,
            source_stride: bytes,
            bytes,
            rows,
        };
        // SAFETY: the caller's word.
        unsafe { self.backend.transfer_rows(&copy, on) }
    }

    /// Copies a rank's shard to the gathered `A` of a rank.
    ///
    /// # Safety
    /// As [`Run::step`].
    unsafe fn place_shard(&self, shard: usize, at: usize, on: RawStream) -> CallResult<()> {
        let rows = self.call.operation.problem.division.rows(shard);
        let source = (self.call.a.at(shard, 0), shard);
        // SAFETY: the caller's word.
        unsafe { self.place(source, at, (0, rows), on) }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn put(&self, peer: usize, chunk: u32, on: RawStream) -> CallResult<()> {
        let rows = self.call.operation.problem.chunk_rows(self.rank(), chunk);
        let source = (self.call.a.at(self.rank(), 0), self.rank());
        // SAFETY: the caller's word.
        unsafe { self.place(source, peer, rows, on) }
    }

    /// Where a shard comes to as a block.
    fn block(&self, shard: usize) -> DeviceAddress {
        let operation = self.call.operation;
        let division = &operation.problem.division;
        let before: u64 = (0..shard).map(|rank| division.elements(rank)).sum();
        match &operation.workspace().staging {
            Some(staging) => staging.at(self.rank(), before * Self::ELEMENT),
            None => self.call.gathered.at(self.rank(), before * Self::ELEMENT),
        }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn spread(&self, shard: usize, on: RawStream) -> CallResult<()> {
        let rows = self.call.operation.problem.division.rows(shard);
        // SAFETY: the caller's word.
        unsafe { self.place((self.block(shard), shard), self.rank(), (0, rows), on) }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn exchange(&self, to: usize, from: usize, on: RawStream) -> CallResult<()> {
        let division = &self.call.operation.problem.division;
        let own = self.call.a.at(self.rank(), 0);
        let bytes = |shard: usize| division.elements(shard) * Self::ELEMENT;
        let messages = [
            (to, true, own, bytes(self.rank())),
            (from, false, self.block(from), bytes(from)),
        ];
        let shared = self.call.stream.shared();
        let vendor = shared.collectives().vendors.of(Provider::Vendor, true);
        let Some(vendor) = vendor else {
            return Err(crate::backend::Failure::new(
                Status::UNSUPPORTED,
                "vendor_call",
                "the vendor's library of collectives is not open any more",
            ));
        };
        let messages = messages.into_iter().filter(|message| message.3 > 0);
        // SAFETY: the caller's word; the library was opened together with all ranks.
        unsafe { crate::collectives::exchange_by_vendor(self.backend, vendor, messages, on) }
    }

    /// # Safety
    /// As [`Run::step`].
    unsafe fn multiply(&self, part: Part, named: On, on: RawStream) -> CallResult<()> {
        let Call {
            operation,
            operands,
            a,
            gathered,
            ..
        } = self.call;
        let problem = &operation.problem;
        let row = match part {
            Part::Own => problem.division.row(problem.rank),
            Part::Shard(rank) => problem.division.row(rank),
            Part::Whole => 0,
        };
        let source = match part {
            Part::Own => a.at(problem.rank, 0),
            _ => gathered.at(problem.rank, row * problem.division.k * Self::ELEMENT),
        };
        let c = row * operands.c.stride as u64 * Self::ELEMENT;
        let matrices = GemmOperands {
            a: source,
            b: operands.b.address,
            c: DeviceAddress(operands.c.address.0 + c),
            bias: operands
                .bias
                .map_or(DeviceAddress::NULL, |bias| bias.address),
        };
        let rows = rows_of(problem, part);
        // SAFETY: the caller's word.
        unsafe {
            operation
                .workspace()
                .multiply(self.backend, (rows, named), &matrices, on)
        }
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
        let (m, k) = (problem.division.m, problem.division.k);
        let mut arguments = GatheredGemmArguments {
            group: CollectiveGroup {
                watch: self.signals.watch,
                slots: [DeviceAddress::NULL; MAX_RANKS],
                packet_bytes: 0,
                rank: problem.rank as u32,
                world: problem.world as u32,
                slot: operation.options.channel,
                operation: CollectiveOperation::ALL_GATHER_GEMM,
                members: [0; MAX_RANKS],
            },
            sources: [DeviceAddress::NULL; MAX_RANKS],
            gathered: [DeviceAddress::NULL; MAX_RANKS],
            arrivals: [DeviceAddress::NULL; MAX_RANKS],
            epoch: self.signals.epoch(),
            b: operands.b.address,
            c: operands.c.address,
            bias: operands
                .bias
                .map_or(DeviceAddress::NULL, |bias| bias.address),
            shape: operation.shape.raw(T::TYPE, m, k),
            shard: problem.division.shard,
            chunk: problem.chunk,
            chunks: problem.chunks,
            sharding: problem.division.sharding,
            mode,
            movers: match mode {
                GatherMode::WAIT => 0,
                _ => limits.movers,
            },
            keep: (problem.keep && mode != GatherMode::WAIT).into(),
            reserved: 0,
        };
        for rank in 0..problem.world {
            arguments.group.members[rank] = rank as u8;
            arguments.sources[rank] = a.at(rank, 0);
            arguments.gathered[rank] = gathered.at(rank, 0);
            arguments.arrivals[rank] = self.signals.arrivals(rank);
        }
        let blocks = operation.options.blocks.unwrap_or(limits.blocks);
        let grid = Geometry {
            blocks: [blocks, 1, 1],
            threads: [limits.threads, 1, 1],
            shared_memory: 0,
        };
        // SAFETY: the caller's word.
        unsafe { self.backend.gathered_gemm(&arguments, &grid, on) }
    }
}
