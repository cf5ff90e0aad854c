//! Collectives by our kernels.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Collectives, Failure};
use crate::collectives::multicast::Reach;
use crate::collectives::plan::Shape;
use crate::collectives::request::Request;
use crate::group::choice::Choice;
use crate::group::inbox::Inboxes;
use crate::group::operations::kernel_of;
use crate::group::slots::Header;

/// A grid of the choice's size.
pub fn geometry(blocks: u32, threads: u32) -> Geometry {
    Geometry {
        blocks: [blocks, 1, 1],
        threads: [threads, 1, 1],
        shared_memory: 0,
    }
}

/// Where all members can be reached otherwise than by their own addresses, if they can.
pub struct Reaches<'a> {
    /// To push into.
    pub inboxes: Option<&'a Inboxes>,
    /// At once.
    pub reach: Option<Reach>,
}

/// Submits what a kernel does.
///
/// # Safety
/// All ranges and the group's memory are live until the stream has passed this point, and every member
/// submits the same.
pub unsafe fn submit(
    backend: &Backend,
    call: &Request<'_>,
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
