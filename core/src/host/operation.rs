//! What a stream can be asked to do, and how far it has come with it.

use super::collectives::Collective;
use super::events::Event;
use super::gemm::{Product, gathered};
use super::graph::Recording;
use super::signals::{self, Pending};
use super::stream::Submission;
use super::transfer;
use super::waiting::Sleep;
use super::words;
use crate::backend::abi::*;
use std::sync::Arc;

/// One item of a stream's work.
#[derive(Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "a queued item must not allocate; an item is moved only when it is queued"
)]
pub(super) enum Operation {
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
pub(super) struct Progress {
    /// Items of a recording that are done.
    replayed: usize,
    /// The wait that the operation is in.
    pub(super) pending: Option<Pending>,
}

/// What became of an attempt to do an operation.
#[must_use]
pub(super) enum Step {
    /// It is done, or has given up.
    Done,
    /// It waits; this is how to sleep on what it waits for.
    Blocked(Sleep),
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
                    return signals::advance_event(event, *number, pending);
                }
                Self::Transfer(transfer) => {
                    transfer::copy(transfer.destination, transfer.source, transfer.bytes);
                    signals::give(&transfer.signal);
                }
                Self::TransferRows(rows) => transfer::copy_rows(rows),
                Self::Give(target) => signals::give(target),
                Self::Multiply(product) => product.run(),
                Self::Arrive { word, epoch } => signals::arrive(*word, *epoch),
                Self::UpdateWord(operation) => words::update(operation),
                Self::Fill {
                    destination,
                    value,
                    bytes,
                } => transfer::fill(*destination, *value, *bytes),
                Self::Record(event, number) => event.reach(*number),
                // A recording holds no recordings: capture flattens them.
                Self::Replay(_) => {}
            }
        }
        Step::Done
    }
}
