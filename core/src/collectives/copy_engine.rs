//! All-gather and all-to-all by copy engines, in step with the neighbour; and the gathering half of an
//! all-reduce, whose shares a kernel has reduced.
//!
//! In step `k` rank `r` puts to rank `r + k`. A copy engine that runs free shares a link with whoever
//! is late or early there, and both lose half (137–248 GB/s on 8 H200s, where in step it is 350–372);
//! so a rank starts step `k + 1` only when rank `r + 1`, which used that link in step `k`, has finished.
//! No compute unit copies: kernels of one block give the signals and wait for them.

use super::launch::geometry;
use super::plan::{Copy, Shape};
use super::slots::{Header, Steps};
use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Collectives, RemoteAccess, Signals};

/// Threads of a kernel that only waits: one for each member, in whole warps.
const WAITING_THREADS: u32 = 128;

/// Submits it.
///
/// # Safety
/// All ranges and the group's memory are live until the stream has passed this point, and every member
/// submits the same.
pub unsafe fn submit(
    backend: &Backend,
    shape: &Shape<'_>,
    steps: Steps<'_>,
    header: &Header<'_>,
    whole: bool,
    stream: RawStream,
) -> CallResult<()> {
    // SAFETY: the caller's word.
    unsafe { barrier(backend, steps, header, whole, stream) }?;
    let (target, wait) = steps.neighbours(header.watch);
    let mut step = 0;
    let mut result = Ok(());
    // The copy to this rank itself comes last: it uses no link, so nobody waits for it.
    shape.moves(Algorithm::PUSH, 0, |Copy(destination, source, bytes)| {
        step += 1;
        if result.is_err() {
            return;
        }
        if bytes > 0 && destination != source {
            let transfer = Transfer::by_engine(destination, source, bytes);
            // SAFETY: the caller's word.
            result = unsafe { backend.transfer(&transfer, stream) };
        }
        // After the last copy that uses a link nobody takes over.
        if step + 1 < shape.world && result.is_ok() {
            // SAFETY: the caller's word.
            result = unsafe { backend.signal_step(&target, &wait, stream) };
        }
    });
    result?;
    // SAFETY: the caller's word.
    unsafe { barrier(backend, steps, header, whole, stream) }
}

/// Holds the stream until every member's stream is here.
///
/// # Safety
/// As [`submit`].
pub unsafe fn barrier(
    backend: &Backend,
    steps: Steps<'_>,
    header: &Header<'_>,
    whole: bool,
    stream: RawStream,
) -> CallResult<()> {
    if whole {
        // SAFETY: the caller's word.
        return unsafe { backend.barrier(&steps.barrier(header.watch), stream) };
    }
    // A barrier names its ranks by the communicator's numbers from 0 on, so other groups move nothing,
    // between barriers of their own.
    let mut nothing = MoveArguments {
        group: *header.channel,
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        sources: [DeviceAddress::NULL; MAX_RANKS],
        bytes: [0; MAX_RANKS],
        copies: 0,
        concurrent: 1,
    };
    header.complete(&mut nothing.group);
    // SAFETY: the caller's word.
    unsafe { backend.collective_move(&nothing, &geometry(1, WAITING_THREADS), stream) }
}
