//! The operations of a stream, the progress of one, and recordings, which are lists of operations.

use super::events::Event;
use crate::backend::abi::*;
use crate::host::collectives::Collective;
use crate::host::gemm::{GemmCall, gathered, reduced};
use crate::host::progress::{Pending, Step};
use crate::host::{copies, signals, words};
use std::sync::Arc;

/// One operation of a stream.
#[derive(Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "queueing must not allocate; an operation is moved only when it is queued"
)]
pub(crate) enum Operation {
    /// Copies bytes, then gives a signal.
    Transfer(Transfer),
    /// Copies rows of bytes.
    TransferRows(RowsCopy),
    /// Gives a signal.
    Give(SignalTarget),
    /// Waits for a signal.
    Wait(SignalWait, SignalPlacementCode),
    /// Gives a signal, then waits for one.
    Step(SignalTarget, SignalWait),
    /// Waits for all ranks.
    Barrier(Barrier),
    /// Updates a word atomically.
    UpdateWord(WordOperation),
    /// Waits for words.
    WaitForWords(WordWait),
    /// Copies between two barriers.
    Move(MoveArguments),
    /// Swaps between two barriers.
    Swap(MoveArguments),
    /// Transfers bytes in packets.
    Packets(PacketArguments),
    /// Reduces between two barriers.
    Reduce(ReduceArguments),
    /// Reduces in packets.
    ReducePackets(ReducePacketArguments),
    /// Reduces in Lamport packets.
    ReduceLamport(ReduceLamportArguments),
    /// Moves bytes in Lamport packets.
    MoveLamport(MoveLamportArguments),
    /// Sums rows in Lamport packets, with a residual and a norm.
    ReduceNorm(ReduceNormArguments),
    /// Runs a multicast collective, emulated, between two barriers.
    Multicast(MulticastArguments),
    /// Sends and receives.
    Exchange(ExchangeArguments),
    /// Multiplies matrices.
    Multiply(GemmCall),
    /// Multiplies matrices while one of them is gathered.
    GatheredGemm(GatheredGemmArguments),
    /// Multiplies matrices, and adds up all ranks' products.
    ReducedGemm(ReducedGemmArguments),
    /// Copies an epoch to the arrival word of a chunk.
    Arrive {
        /// The arrival word.
        word: DeviceAddress,
        /// Address of the epoch.
        epoch: DeviceAddress,
    },
    /// Fills memory with a byte.
    Fill {
        /// First byte written.
        destination: DeviceAddress,
        /// The byte.
        value: u8,
        /// Number of bytes.
        bytes: u64,
    },
    /// Reaches a record of an event: the numbered one, or in a replay a new one.
    Record(Arc<Event>, Option<u32>),
    /// Waits for the numbered record of an event.
    WaitEvent(Arc<Event>, u32),
    /// Runs all recorded operations, in order.
    Replay(Arc<Recording>),
}

/// The progress of an operation.
#[derive(Default)]
pub(crate) struct Progress {
    /// Number of operations of a recording that are done.
    pub(super) replayed: usize,
    /// The wait that the operation is in.
    pub(crate) pending: Option<Pending>,
}

/// The operations that one stream recorded while it was captured, in order.
#[derive(Default)]
pub(crate) struct Recording(Vec<Operation>);

impl Recording {
    /// Adds an operation. A recording is added operation by operation, so that none is nested.
    pub(crate) fn push(&mut self, operation: Operation) {
        match operation {
            Operation::Replay(recording) => self.0.extend_from_slice(recording.items()),
            operation => self.0.push(operation),
        }
    }

    fn items(&self) -> &[Operation] {
        &self.0
    }
}

/// Work for a stream: an operation, or a value that becomes one if it must be queued.
pub(crate) trait Submission {
    /// Advances the work as far as possible without waiting.
    ///
    /// # Safety
    /// All memory that the work uses is live, and no other thread advances this progress.
    unsafe fn advance(&self, progress: &mut Progress) -> Step;

    /// Converts the work to an operation that can be queued.
    fn into_operation(self) -> Operation;
}

impl Submission for Collective<'_> {
    unsafe fn advance(&self, progress: &mut Progress) -> Step {
        // SAFETY: this method has the same conditions, and the collective was checked before it was submitted.
        unsafe { Collective::advance(*self, &mut progress.pending) }
    }

    fn into_operation(self) -> Operation {
        match self {
            Self::Move(arguments) => Operation::Move(*arguments),
            Self::Swap(arguments) => Operation::Swap(*arguments),
            Self::Packets(arguments) => Operation::Packets(*arguments),
            Self::Reduce(arguments) => Operation::Reduce(*arguments),
            Self::ReducePackets(arguments) => Operation::ReducePackets(*arguments),
            Self::ReduceLamport(arguments) => Operation::ReduceLamport(*arguments),
            Self::MoveLamport(arguments) => Operation::MoveLamport(*arguments),
            Self::ReduceNorm(arguments) => Operation::ReduceNorm(*arguments),
            Self::Multicast(arguments) => Operation::Multicast(*arguments),
            Self::Exchange(arguments) => Operation::Exchange(*arguments),
        }
    }
}

impl Submission for Operation {
    unsafe fn advance(&self, progress: &mut Progress) -> Step {
        if let Self::Replay(recording) = self {
            while let Some(item) = recording.items().get(progress.replayed) {
                // SAFETY: all memory in the recording is live, as this method requires.
                if let Step::Blocked(sleep) = unsafe { item.advance_one(&mut progress.pending) } {
                    return Step::Blocked(sleep);
                }
                progress.pending = None;
                progress.replayed += 1;
            }
            return Step::Done;
        }
        // SAFETY: this method has the same conditions.
        unsafe { self.advance_one(&mut progress.pending) }
    }

    fn into_operation(self) -> Operation {
        self
    }
}

impl Operation {
    /// # Safety
    /// As for [`Submission::advance`].
    unsafe fn advance_one(&self, pending: &mut Option<Pending>) -> Step {
        // SAFETY: all memory that the operation uses is live, as this function requires; its numbers were checked.
        unsafe {
            match self {
                Self::Wait(wait, placement) => {
                    return signals::advance_wait(wait, *placement, pending);
                }
                Self::Step(target, wait) => return signals::advance_step(target, wait, pending),
                Self::Barrier(barrier) => return signals::advance_barrier(barrier, pending),
                Self::WaitForWords(wait) => return words::advance_wait(wait, pending),
                Self::Move(arguments) => return Collective::Move(arguments).advance(pending),
                Self::Swap(arguments) => return Collective::Swap(arguments).advance(pending),
                Self::Packets(arguments) => return Collective::Packets(arguments).advance(pending),
                Self::Reduce(arguments) => return Collective::Reduce(arguments).advance(pending),
                Self::ReducePackets(arguments) => {
                    return Collective::ReducePackets(arguments).advance(pending);
                }
                Self::ReduceLamport(arguments) => {
                    return Collective::ReduceLamport(arguments).advance(pending);
                }
                Self::MoveLamport(arguments) => {
                    return Collective::MoveLamport(arguments).advance(pending);
                }
                Self::ReduceNorm(arguments) => {
                    return Collective::ReduceNorm(arguments).advance(pending);
                }
                Self::Multicast(arguments) => {
                    return Collective::Multicast(arguments).advance(pending);
                }
                Self::Exchange(arguments) => {
                    return Collective::Exchange(arguments).advance(pending);
                }
                Self::GatheredGemm(arguments) => return gathered::advance(arguments, pending),
                Self::ReducedGemm(arguments) => return reduced::advance(arguments, pending),
                Self::WaitEvent(event, number) => {
                    return event.advance_wait(*number, pending);
                }
                Self::Transfer(transfer) => {
                    copies::transfer(transfer.destination, transfer.source, transfer.bytes);
                    signals::give(&transfer.signal);
                }
                Self::TransferRows(rows) => copies::copy_rows(rows),
                Self::Give(target) => signals::give(target),
                Self::Multiply(product) => product.run(),
                Self::Arrive { word, epoch } => signals::arrive(*word, *epoch),
                Self::UpdateWord(operation) => words::update(operation),
                Self::Fill {
                    destination,
                    value,
                    bytes,
                } => copies::fill(*destination, *value, *bytes),
                Self::Record(event, number) => event.reach(*number),
                // Never occurs: `Recording::push` flattens recordings.
                Self::Replay(_) => {}
            }
        }
        Step::Done
    }
}
