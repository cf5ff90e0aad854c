//! Put and get, by the copy engine or by a kernel.

use crate::gpu::{Gpu, Grid, launch};
use crate::open::OpenGpu;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, RemoteAccess, Signals};

impl<G: Gpu> RemoteAccess for OpenGpu<G> {
    unsafe fn transfer(&self, transfer: &Transfer, on: RawStream) -> CallResult<()> {
        let row = &transfer.row;
        let kernels = &self.state().kernels;
        let mut grid = Grid::new(row.blocks, row.threads);
        let kernel = match row.method {
            // SAFETY: the caller upholds this method's contract, which is the callee's.
            MethodCode::COPY_ENGINE => return unsafe { copy_by_engine(self, transfer, on) },
            MethodCode::VECTOR => kernels.copy_vector,
            MethodCode::UNROLLED => kernels.copy_unrolled,
            MethodCode::BULK => {
                grid.shared_memory = bulk_shared_memory(&self.0, transfer)?;
                kernels.copy_bulk.ok_or_else(|| no_bulk(&self.0))?
            }
            other => {
                return Err(refuse(format!(
                    "method {} does not move bytes; let the planner choose one",
                    other.name()
                )));
            }
        };
        if transfer.bytes == 0 && transfer.signal.word.0 == 0 {
            return Ok(());
        }
        let arguments = TransferArguments {
            destination: transfer.destination,
            source: transfer.source,
            bytes: transfer.bytes,
            signal: transfer.signal,
            stages: row.stages,
            stage_bytes: row.stage_bytes,
        };
        // SAFETY: the kernel's argument is a `TransferArguments`; the caller keeps both ranges and the signal's
        // words live until the stream has passed this point.
        unsafe { launch(&self.0, kernel, grid, &arguments, on) }
    }

    unsafe fn transfer_rows(&self, copy: &RowsCopy, on: RawStream) -> CallResult<()> {
        if copy.bytes == 0 || copy.rows == 0 {
            return Ok(());
        }
        let _entered = self.enter()?;
        // SAFETY: the caller upholds this method's contract, which is the callee's.
        unsafe { self.copy_rows(copy, on) }
    }
}

/// Enqueues a copy by the copy engine, then its signal as separate work.
///
/// # Safety
/// As [`RemoteAccess::transfer`].
unsafe fn copy_by_engine<G: Gpu>(
    gpu: &OpenGpu<G>,
    transfer: &Transfer,
    on: RawStream,
) -> CallResult<()> {
    let _entered = gpu.enter()?;
    if transfer.bytes != 0 {
        // SAFETY: the caller keeps both ranges live until the stream has passed this point.
        unsafe { gpu.copy(transfer, on) }?;
    }
    if transfer.signal.word.0 == 0 {
        return Ok(());
    }
    // SAFETY: the caller keeps the signal's words live until the stream has passed this point.
    unsafe { gpu.signal_give(&transfer.signal, SignalPlacementCode::DEVICE, on) }
}

/// Returns the dynamic shared memory per block, in bytes, that a bulk transfer needs; `INVALID_ARGUMENT` if the
/// bulk kernel cannot move this.
fn bulk_shared_memory<G: Gpu>(gpu: &G, transfer: &Transfer) -> CallResult<u32> {
    if gpu.state().kernels.copy_bulk.is_none() {
        return Err(no_bulk(gpu));
    }
    let row = &transfer.row;
    let apart = transfer.destination.0.wrapping_sub(transfer.source.0);
    if !apart.is_multiple_of(16) {
        return Err(refuse(format!(
            "bulk copies need source and destination at the same distance from a 16-byte \
             boundary, but these differ by {} bytes; use VECTOR",
            apart % 16
        )));
    }
    let most = gpu.state().capabilities.shared_memory_per_block;
    let whole = row.stages != 0 && row.stage_bytes != 0 && row.stage_bytes.is_multiple_of(16);
    let bytes = whole.then(|| gpu.bulk_ring_bytes(row.stages, row.stage_bytes));
    bytes
        .flatten()
        .filter(|&bytes| bytes <= most)
        .ok_or_else(|| {
            refuse(format!(
                "{} bulk copies of {} bytes in flight: their size must be a positive multiple of 16, and \
                 with one barrier each they must fit the block's {most} bytes of shared memory",
                row.stages, row.stage_bytes
            ))
        })
}

fn no_bulk<G: Gpu>(gpu: &G) -> Failure {
    refuse(format!(
        "device {} has no bulk copies; use VECTOR",
        gpu.state().description.ordinal
    ))
}

fn refuse(message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "transfer", message)
}
