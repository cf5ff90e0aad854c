//! What a stream can be asked to do, how far it has come with it, and lists of that: recordings.

use super::events::Event;
use crate::backend::abi::*;
use crate::host::collectives::Collective;
use crate::host::gemm::{Product, gathered};
use crate::host::progress::{Pending, Step};
use crate::host::{copies, signals, words};
use std::sync::Arc;

/// One item of a stream's work.
#[derive(Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "a queued item must not allocate; an item is moved only when it is queued"
)]
pub(crate) enum Operation {
    /// Move bytes, then give a signal.
    Transfer(Transfer),
    /// Move rows of bytes.
    TransferRows(RowsCopy),
    /// Give a signal.
    Give(SignalTarget),
    /// Wait for a signal.
    Wait(SignalWait, SignalPlacement),
    /// Give a signal, then wait for one.
    Step(SignalTarget, SignalWait),
    /// Wait for all ranks.
    Barrier(Barrier),
    /// An atomic operation on a word.
    UpdateWord(WordOperation),
    /// Wait for words.
    WaitForWords(WordWait),
    /// Copies between two barriers.
    Move(MoveArguments),
    /// Swaps between two barriers.
    Swap(MoveArguments),
    /// Bytes in packets.
    Packets(PacketArguments),
    /// A reduction between two barriers.
    Reduce(ReduceArguments),
    /// A reduction in packets.
    ReducePackets(ReducePacketArguments),
    /// Loads and stores as by multicast addresses, between two barriers.
    Multicast(MulticastArguments),
    /// Sends and receives.
    Exchange(ExchangeArguments),
    /// Multiply matrices.
    Multiply(Product),
    /// Multiply matrices, one of which is gathered meanwhile.
    GatheredGemm(GatheredGemmArguments),
    /// Copy an epoch to the word that says that a chunk has arrived.
    Arrive {
        /// The word.
        word: DeviceAddress,
        /// Where the epoch is.
        epoch: DeviceAddress,
    },
    /// Fill memory with a byte.
    Fill {
        /// First byte written.
        destination: DeviceAddress,
        /// What is written.
        value: u8,
        /// Bytes.
        bytes: u64,
    },
    /// Reach an event: the numbered record of it, or at replay a fresh one.
    Record(Arc<Event>, Option<u32>),
    /// Wait for the numbered record of an event.
    WaitEvent(Arc<Event>, u32),
    /// Do all that was recorded, in order.
    Replay(Arc<Recording>),
}

/// How far an operation has come.
#[derive(Default)]
pub(crate) struct Progress {
    /// Items of a recording that are done.
    replayed: usize,
    /// The wait that the operation is in.
    pub(crate) pending: Option<Pending>,
}

/// The operations that one stream was asked for while it was captured, in order.
#[derive(Default)]
pub(crate) struct Recording(Vec<Operation>);

impl Recording {
    /// Adds an operation. Another recording is added item by item, so that none is nested.
    pub(crate) fn push(&mut self, operation: Operation) {
        match operation {
            Operation::Replay(recording) => self.0.extend_from_slice(recording.items()),
            operation => self.0.push(operation),
        }
    }

    /// The operations.
    fn items(&self) -> &[Operation] {
        &self.0
    }
}

/// What a stream is asked to do: an operation, or something that becomes one if it must be queued.
pub(crate) trait Submission {
    /// Goes on with the work as far as it can without waiting.
    ///
    /// # Safety
    /// All memory that the work names is live, and no other thread advances this progress.
    unsafe fn advance(&self, progress: &mut Progress) -> Step;

    /// The same as an item of a queue.
    fn into_operation(self) -> Operation;
}

impl Submission for Collective<'_> {
    unsafe fn advance(&self, progress: &mut Progress) -> Step {
        // SAFETY: the caller's word.
        unsafe { Collective::advance(*self, &mut progress.pending) }
    }

    fn into_operation(self) -> Operation {
        match self {
            Self::Move(arguments) => Operation::Move(*arguments),
            Self::Swap(arguments) => Operation::Swap(*arguments),
            Self::Packets(arguments) => Operation::Packets(*arguments),
            Self::Reduce(arguments) => Operation::Reduce(*arguments),
            Self::ReducePackets(arguments) => Operation::ReducePackets(*arguments),
            Self::Multicast(arguments) => Operation::Multicast(*arguments),
            Self::Exchange(arguments) => Operation::Exchange(*arguments),
        }
    }
}

impl Submission for Operation {
    unsafe fn advance(&self, progress: &mut Progress) -> Step {
        if let Self::Replay(recording) = self {
            while let Some(item) = recording.items().get(progress.replayed) {
                // SAFETY: the caller's word, for all that the recording names.
                if let Step::Blocked(sleep) = unsafe { item.advance_one(&mut progress.pending) } {
                    return Step::Blocked(sleep);
                }
                progress.pending = None;
                progress.replayed += 1;
            }
            return Step::Done;
        }
        // SAFETY: the caller's word.
        unsafe { self.advance_one(&mut progress.pending) }
    }

    fn into_operation(self) -> Operation {
        self
    }
}

impl Operation {
    /// # Safety
    /// As [`Submission::advance`].
    unsafe fn advance_one(&self, pending: &mut Option<Pending>) -> Step {
        // SAFETY: the caller's word, for each operation's own addresses.
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
                Self::Multicast(arguments) => {
                    return Collective::Multicast(arguments).advance(pending);
                }
                Self::Exchange(arguments) => {
                    return Collective::Exchange(arguments).advance(pending);
                }
                Self::GatheredGemm(arguments) => return gathered::advance(arguments, pending),
                Self::WaitEvent(event, number) => {
                    return event.advance_wait(*number, pending);
                }
                Self::Transfer(transfer) => {
                    copies::copy(transfer.destination, transfer.source, transfer.bytes);
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
                // A recording holds no recordings: capture flattens them.
                Self::Replay(_) => {}
            }
        }
        Step::Done
    }
}
