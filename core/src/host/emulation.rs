//! Kernels of collectives, run to their end in the caller as this backend runs them: for a driver that
//! only pretends to have a GPU, and whose ranks all do the same.

use super::collectives::{Collective, exchange};
use super::gemm::{Product, check_gathered, gathered};
use super::progress::{Pending, Step};
use super::words;
use crate::backend::CallResult;
use crate::backend::abi::*;

/// What an address in a table of allocations is here, for so many bytes; `None` to give up.
pub type Resolve<'a> = dyn FnMut(DeviceAddress, u64) -> Option<DeviceAddress> + 'a;

/// A kernel with its arguments, all of them addresses that this processor can use.
pub enum Work<'a> {
    /// `symmem_move`
    Move(&'a MoveArguments),
    /// `symmem_swap`
    Swap(&'a MoveArguments),
    /// `symmem_move_packets`
    Packets(&'a PacketArguments),
    /// `symmem_reduce_*`
    Reduce(&'a ReduceArguments),
    /// `symmem_reduce_packets_*`
    ReducePackets(&'a ReducePacketArguments),
    /// `symmem_exchange`; its table, and what that holds, are resolved when they are used.
    Exchange(&'a ExchangeArguments, &'a mut Resolve<'a>),
    /// A product by the vendor's library.
    Multiply(GemmShape, GemmOperands),
    /// A product that gathers its `A`.
    GatheredGemm(&'a GatheredGemmArguments),
    /// `symmem_word_update`
    UpdateWord(&'a WordOperation),
    /// `symmem_word_wait`
    WaitForWords(&'a WordWait),
}

/// Runs a kernel to its end, or until `pause`, called between two looks at what it waits for, says no
/// more: then false.
///
/// # Errors
/// `INVALID_ARGUMENT` for numbers out of range.
///
/// # Safety
/// All memory that it names is live; in a group each member's slots are
/// [`SLOT_BLOCKS`] times [`SLOT_BYTES`], and [`PACKET_BLOCKS`] regions for packets behind them.
pub unsafe fn run(mut work: Work<'_>, pause: &mut dyn FnMut() -> bool) -> CallResult<bool> {
    match &work {
        Work::Move(arguments) => Collective::Move(arguments).check()?,
        Work::Swap(arguments) => Collective::Swap(arguments).check()?,
        Work::Packets(arguments) => Collective::Packets(arguments).check()?,
        Work::Reduce(arguments) => Collective::Reduce(arguments).check()?,
        Work::ReducePackets(arguments) => Collective::ReducePackets(arguments).check()?,
        Work::Exchange(arguments, _) => Collective::Exchange(arguments).check()?,
        Work::Multiply(shape, operands) => drop(Product::new(*shape, *operands)?),
        Work::GatheredGemm(arguments) => check_gathered(arguments)?,
        Work::UpdateWord(operation) => words::check_update(operation)?,
        Work::WaitForWords(wait) => words::check_wait(wait)?,
    }
    let mut pending: Option<Pending> = None;
    loop {
        // SAFETY: the caller's word, and the arguments were checked.
        let step = unsafe {
            match &mut work {
                Work::Move(arguments) => Collective::Move(arguments).advance(&mut pending),
                Work::Swap(arguments) => Collective::Swap(arguments).advance(&mut pending),
                Work::Packets(arguments) => Collective::Packets(arguments).advance(&mut pending),
                Work::Reduce(arguments) => Collective::Reduce(arguments).advance(&mut pending),
                Work::ReducePackets(arguments) => {
                    Collective::ReducePackets(arguments).advance(&mut pending)
                }
                Work::Exchange(arguments, resolve) => {
                    exchange::advance(arguments, &mut pending, resolve)
                }
                Work::Multiply(shape, operands) => {
                    Product::new(*shape, *operands)?.run();
                    Step::Done
                }
                Work::GatheredGemm(arguments) => gathered::advance(arguments, &mut pending),
                Work::UpdateWord(operation) => {
                    words::update(operation);
                    Step::Done
                }
                Work::WaitForWords(wait) => words::advance_wait(wait, &mut pending),
            }
        };
        match step {
            Step::Done => return Ok(true),
            Step::Blocked(_) if pause() => {}
            Step::Blocked(_) => return Ok(false),
        }
    }
}
