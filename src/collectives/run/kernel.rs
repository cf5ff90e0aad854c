//! Collectives by symmem's kernels.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, CollectiveKernels, Failure};
use crate::collectives::multicast::MulticastAddresses;
use crate::collectives::plan::Shape;
use crate::collectives::request::Request;
use crate::group::choice::Choice;
use crate::group::inbox::{Inboxes, LamportInboxes};
use crate::group::operations::kernel_of;
use crate::group::slots::Header;

/// Returns the geometry of a one-dimensional grid.
pub fn geometry(blocks: u32, threads: u32) -> Geometry {
    Geometry {
        blocks: [blocks, 1, 1],
        threads: [threads, 1, 1],
        shared_memory: 0,
    }
}

/// Paths to the members other than their own addresses.
pub struct PeerPaths<'a> {
    /// The inboxes for pieces.
    pub inboxes: Option<&'a Inboxes>,
    /// The inboxes for Lamport packets.
    pub lamport: Option<&'a LamportInboxes>,
    /// The multicast addresses.
    pub reach: Option<MulticastAddresses>,
}

/// Submits the kernels of a call.
///
/// # Safety
/// All ranges and the group's memory are live until the stream has passed this point, and every member submits
/// the same call.
pub unsafe fn submit(
    backend: &Backend,
    call: &Request<'_>,
    shape: &Shape<'_>,
    header: &Header<'_>,
    paths: &PeerPaths<'_>,
    choice: &Choice,
    stream: RawStream,
) -> CallResult<()> {
    let grid = geometry(choice.blocks, choice.threads);
    let (algorithm, element, reduce) = (choice.algorithm, call.element, call.reduce);
    match kernel_of(call.operation, algorithm) {
        Some(CollectiveKernel::MOVE) => {
            let two = call.operation == CollectiveOperationCode::BROADCAST
                && algorithm == AlgorithmCode::TWO_SHOT;
            for stage in 0..if two { 2 } else { 1 } {
                let moved = shape.move_arguments(header, algorithm, stage, choice.concurrent);
                // SAFETY: guaranteed by the caller.
                unsafe { backend.collective_move(&moved, &grid, stream) }?;
            }
            Ok(())
        }
        Some(CollectiveKernel::SWAP) => {
            let swapped = shape.move_arguments(header, algorithm, 0, choice.concurrent);
            // SAFETY: guaranteed by the caller.
            unsafe { backend.collective_swap(&swapped, &grid, stream) }
        }
        Some(CollectiveKernel::PACKETS) => {
            let packets = shape.packet_arguments(header);
            // SAFETY: guaranteed by the caller.
            unsafe { backend.collective_packets(&packets, &grid, stream) }
        }
        Some(CollectiveKernel::REDUCE) => {
            let reduced = shape.reduce_arguments(header, algorithm, element, reduce);
            // SAFETY: guaranteed by the caller.
            unsafe { backend.collective_reduce(&reduced, &grid, stream) }
        }
        Some(CollectiveKernel::REDUCE_PUSH) => {
            let inboxes = paths.inboxes;
            let reduced = shape.reduce_push_arguments(header, algorithm, element, reduce, inboxes);
            // SAFETY: guaranteed by the caller.
            unsafe { backend.collective_reduce_push(&reduced, &grid, stream) }?;
            if algorithm == AlgorithmCode::PIECES
                && call.operation == CollectiveOperationCode::ALL_REDUCE
            {
                let gathered = shape.gathering(element).piece_arguments(header, inboxes);
                // SAFETY: guaranteed by the caller.
                unsafe { backend.collective_pieces(&gathered, &grid, stream) }?;
            }
            Ok(())
        }
        Some(CollectiveKernel::PIECES) => {
            let moved = shape.piece_arguments(header, paths.inboxes);
            // SAFETY: guaranteed by the caller.
            unsafe { backend.collective_pieces(&moved, &grid, stream) }
        }
        Some(CollectiveKernel::MOVE_LAMPORT) => {
            let inboxes = lamport_of(paths, "collective_move_lamport")?;
            for range in shape.lamport_launches(algorithm, inboxes) {
                let moved = shape.move_lamport_arguments(header, inboxes, range);
                // SAFETY: guaranteed by the caller.
                unsafe { backend.collective_move_lamport(&moved, &grid, stream) }?;
            }
            Ok(())
        }
        Some(CollectiveKernel::REDUCE_LAMPORT) => {
            let inboxes = lamport_of(paths, "collective_reduce_lamport")?;
            for range in shape.lamport_launches(algorithm, inboxes) {
                let reduced = shape
                    .reduce_lamport_arguments(header, algorithm, element, reduce, inboxes, range);
                // SAFETY: guaranteed by the caller.
                unsafe { backend.collective_reduce_lamport(&reduced, &grid, stream) }?;
            }
            Ok(())
        }
        Some(CollectiveKernel::MULTICAST_REDUCE | CollectiveKernel::MULTICAST_MOVE) => {
            let Some(reach) = &paths.reach else {
                // The selector picks multicast only if it reaches all memory of the call.
                let why = "multicast does not reach all memory of the call";
                let call = "collective_multicast";
                return Err(Failure::new(Status::INVALID_ARGUMENT, call, why));
            };
            let all = shape.multicast_arguments(header, reach, algorithm, element, reduce);
            // SAFETY: guaranteed by the caller.
            unsafe { backend.collective_multicast(&all, &grid, stream) }
        }
        _ => {
            let reduced = shape.reduce_packet_arguments(header, algorithm, element, reduce);
            // SAFETY: guaranteed by the caller.
            unsafe { backend.collective_reduce_packets(&reduced, &grid, stream) }
        }
    }
}

/// Returns the inboxes for Lamport packets. The selector picks these packets only on channels that have some.
fn lamport_of<'a>(paths: &PeerPaths<'a>, call: &'static str) -> CallResult<&'a LamportInboxes> {
    let why = "the channel has no inbox for Lamport packets";
    let refused = || Failure::new(Status::INVALID_ARGUMENT, call, why);
    paths.lamport.ok_or_else(refused)
}
