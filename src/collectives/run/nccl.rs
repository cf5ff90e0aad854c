//! Collectives by NCCL or RCCL, over the same buffers and streams.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, NcclCollectives};
use crate::base::error::{Error, Result};
use crate::collectives::plan::Shape;
use crate::collectives::request::Request;
use crate::group::nccl;
use crate::group::provider::Provider;

/// Submits a collective to NCCL or RCCL.
///
/// # Safety
/// `nccl` is open; all ranges are live until the stream has passed this point, and every rank submits the
/// same call.
pub unsafe fn submit(
    backend: &Backend,
    nccl: RawNccl,
    call: &Request<'_>,
    shape: &Shape<'_>,
    stream: RawStream,
) -> CallResult<()> {
    use CollectiveOperationCode as O;
    let rank = shape.rank;
    let size = call.element.bytes();
    let made = |operation, source, destination, bytes: u64, peer: usize| NcclCall {
        source,
        destination,
        count: bytes / size,
        operation,
        element: call.element,
        reduce: call.reduce,
        peer: peer as u32,
    };
    let destination = shape.destination.at(rank, 0);
    if call.operation == O::ALL_GATHER_V {
        return nccl::group(backend, || {
            for root in (0..shape.world).filter(|&root| shape.parts.bytes(root) > 0) {
                let part = shape.destination.at(rank, shape.parts.offset(root));
                // Only the root's source is read. A rank without elements has no source address of its own.
                let source = if rank == root {
                    shape.gathered_from(rank)
                } else {
                    part
                };
                let part = made(O::BROADCAST, source, part, shape.parts.bytes(root), root);
                // SAFETY: guaranteed by the caller.
                unsafe { backend.nccl_call(nccl, &part, stream) }?;
            }
            Ok(())
        });
    }
    let (source, destination) = match call.operation {
        O::ALL_GATHER | O::GATHER => (shape.gathered_from(rank), destination),
        O::REDUCE_SCATTER | O::SCATTER => (shape.source.at(rank, 0), shape.scattered_to(rank)),
        _ => (shape.source.at(rank, 0), destination),
    };
    let bytes = shape.parts.bytes(0);
    let whole = made(call.operation, source, destination, bytes, shape.root);
    // SAFETY: guaranteed by the caller.
    unsafe { backend.nccl_call(nccl, &whole, stream) }
}

/// Refuses what NCCL would not do for these addresses. Its windows need parts that start at multiples of 16 bytes
/// ([`Request::starts_at_vectors`]): for others, NCCL 2.28.9 gathers wrong bytes without an error. And it loads whole
/// elements, which memory of the caller may not be aligned to; a fault there would end the context.
///
/// # Errors
/// [`Error::Unsupported`] for windows, [`Error::InvalidArgument`] for elements.
pub fn refuse_unaligned(rank: usize, request: &Request<'_>, provider: Provider) -> Result<()> {
    let operation = request.name;
    let is_own = request.source.is_own();
    if provider == Provider::NcclWindows {
        let message = match is_own {
            true => {
                "symmetric windows need symmetric buffers; use `Provider::Nccl` for a `DeviceSlice`"
            }
            false => {
                "symmetric windows need ranges, and members' parts of them, that start at a multiple of 16 bytes; use \
                 `Provider::Nccl` for others"
            }
        };
        return Err(Error::Unsupported {
            rank,
            operation,
            message: message.into(),
        });
    }
    let element = request.element.bytes();
    let starts = [&request.destination, &request.source].map(|range| range.start(rank));
    if is_own && starts.iter().any(|start| !start.is_multiple_of(element)) {
        return Err(Error::InvalidArgument {
            rank,
            operation,
            message: format!(
                "NCCL takes elements of {element} bytes at multiples of {element} only, not at {:#x} and {:#x}; align them, \
                 or use `Provider::Symmem`",
                starts[0], starts[1]
            ),
        });
    }
    Ok(())
}
