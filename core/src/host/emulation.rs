//! Runs collective kernels to completion in the caller, as the host backend runs them. The fake drivers use this,
//! because they have no GPU. All ranks of a group must use it, because the layout of the slots is the host backend's.

use super::collectives::{Collective, exchange};
use super::gemm::{GemmCall, check_gathered, check_reduced, gathered, reduced};
use super::progress::{Pending, Step};
use super::words;
use crate::backend::CallResult;
use crate::backend::abi::*;

pub use super::collectives::exchange::Resolve;
pub use super::gemm::reduced::limits as reduced_limits;

/// A kernel with its arguments, whose addresses this process can use.
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
    /// `symmem_reduce_lamport_*`
    ReduceLamport(&'a ReduceLamportArguments),
    /// `symmem_move_lamport`
    MoveLamport(&'a MoveLamportArguments),
    /// `symmem_reduce_norm_*`
    ReduceNorm(&'a ReduceNormArguments),
    /// `symmem_exchange`. The table and the addresses in it are resolved when they are used.
    Exchange(&'a ExchangeArguments, &'a mut Resolve<'a>),
    /// A GEMM by cuBLASLt or hipBLASLt.
    Multiply(GemmLayout, GemmOperands),
    /// An all-gather + GEMM.
    GatheredGemm(&'a GatheredGemmArguments),
    /// A GEMM + reduce-scatter or GEMM + all-reduce. The inbox and the words have at least the size of
    /// [`reduced_limits`].
    ReducedGemm(&'a ReducedGemmArguments),
    /// `symmem_word_update`
    UpdateWord(&'a WordOperation),
    /// `symmem_word_wait`
    WaitForWords(&'a WordWait),
}

/// Runs a kernel to completion and returns true; or returns false once `pause`, which is called between looks at what
/// the kernel waits for, returns false.
///
/// # Errors
/// `INVALID_ARGUMENT` if a number is out of range.
///
/// # Safety
/// All memory in the arguments is live. In a group, each member has slots of [`SLOT_BLOCKS`] times [`SLOT_BYTES`],
/// followed by [`PACKET_BLOCKS`] regions for packets.
pub unsafe fn run(mut work: Work<'_>, pause: &mut dyn FnMut() -> bool) -> CallResult<bool> {
    match &work {
        Work::Move(arguments) => Collective::Move(arguments).check()?,
        Work::Swap(arguments) => Collective::Swap(arguments).check()?,
        Work::Packets(arguments) => Collective::Packets(arguments).check()?,
        Work::Reduce(arguments) => Collective::Reduce(arguments).check()?,
        Work::ReducePackets(arguments) => Collective::ReducePackets(arguments).check()?,
        Work::ReduceLamport(arguments) => Collective::ReduceLamport(arguments).check()?,
        Work::MoveLamport(arguments) => Collective::MoveLamport(arguments).check()?,
        Work::ReduceNorm(arguments) => Collective::ReduceNorm(arguments).check()?,
        Work::Exchange(arguments, _) => Collective::Exchange(arguments).check()?,
        Work::Multiply(shape, operands) => drop(GemmCall::new(*shape, *operands)?),
        Work::GatheredGemm(arguments) => check_gathered(arguments)?,
        Work::ReducedGemm(arguments) => check_reduced(arguments)?,
        Work::UpdateWord(operation) => words::check_update(operation)?,
        Work::WaitForWords(wait) => words::check_wait(wait)?,
    }
    let mut pending: Option<Pending> = None;
    loop {
        // SAFETY: all memory is live, as this function requires, and the arguments were checked.
        let step = unsafe {
            match &mut work {
                Work::Move(arguments) => Collective::Move(arguments).advance(&mut pending),
                Work::Swap(arguments) => Collective::Swap(arguments).advance(&mut pending),
                Work::Packets(arguments) => Collective::Packets(arguments).advance(&mut pending),
                Work::Reduce(arguments) => Collective::Reduce(arguments).advance(&mut pending),
                Work::ReducePackets(arguments) => {
                    Collective::ReducePackets(arguments).advance(&mut pending)
                }
                Work::ReduceLamport(arguments) => {
                    Collective::ReduceLamport(arguments).advance(&mut pending)
                }
                Work::MoveLamport(arguments) => {
                    Collective::MoveLamport(arguments).advance(&mut pending)
                }
                Work::ReduceNorm(arguments) => {
                    Collective::ReduceNorm(arguments).advance(&mut pending)
                }
                Work::Exchange(arguments, resolve) => {
                    exchange::advance(arguments, &mut pending, *resolve)
                }
                Work::Multiply(shape, operands) => {
                    GemmCall::new(*shape, *operands)?.run();
                    Step::Done
                }
                Work::GatheredGemm(arguments) => gathered::advance(arguments, &mut pending),
                Work::ReducedGemm(arguments) => reduced::advance(arguments, &mut pending),
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
