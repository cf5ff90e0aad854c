//! Put and get, by copy engine or by kernel.

use crate::device::stream;
use crate::driver::call;
use crate::instance::CudaBackend;
use crate::kernels::Kernel;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, RemoteAccess, Signals};

impl RemoteAccess for CudaBackend {
    unsafe fn transfer(&self, transfer: &Transfer, on: RawStream) -> CallResult<()> {
        let row = &transfer.row;
        let (kernel, shared_memory) = match row.method {
            // SAFETY: the caller's conditions are the same.
            Method::COPY_ENGINE => return unsafe { self.copy_by_engine(transfer, on) },
            Method::VECTOR => (self.kernels.copy_vector, 0),
            Method::UNROLLED => (self.kernels.copy_unrolled, 0),
            Method::BULK => self.bulk_kernel(transfer)?,
            other => {
                return Err(refuse(format!(
                    "method {} names no way to move bytes; the planner chooses one",
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
        // SAFETY: the kernel takes these arguments; the caller keeps the memory live.
        unsafe {
            self.launch_own(
                kernel,
                row.blocks,
                row.threads,
                shared_memory,
                &arguments,
                on,
            )
        }
    }
}

impl CudaBackend {
    /// A copy by the copy engine, then the signal as work of its own.
    ///
    /// # Safety
    /// As [`RemoteAccess::transfer`].
    unsafe fn copy_by_engine(&self, transfer: &Transfer, on: RawStream) -> CallResult<()> {
        let _entered = self.enter()?;
        if transfer.bytes != 0 {
            // The copy that takes any pair of addresses: the driver knows whose each is, so this
            // also moves bytes to and from registered host memory.
            // SAFETY: both ranges are live until the stream has passed.
            unsafe {
                call!(
                    self.driver,
                    cuMemcpyAsync(
                        transfer.destination.0,
                        transfer.source.0,
                        transfer.bytes as usize,
                        stream(on),
                    )
                )
            }?;
        }
        if transfer.signal.word.0 == 0 {
            return Ok(());
        }
        // SAFETY: the signal's words are live until the stream has passed.
        unsafe { self.signal_give(&transfer.signal, SignalPlacement::DEVICE, on) }
    }

    /// The bulk kernel and the shared memory that its blocks need, if it can move this.
    fn bulk_kernel(&self, transfer: &Transfer) -> CallResult<(Kernel, u32)> {
        let row = &transfer.row;
        let Some(kernel) = self.kernels.copy_bulk else {
            return Err(refuse(format!(
                "bulk copies need sm_90 and this device is sm_{}; use VECTOR",
                self.description.architecture
            )));
        };
        let apart = transfer.destination.0.wrapping_sub(transfer.source.0);
        if !apart.is_multiple_of(16) {
            return Err(refuse(format!(
                "bulk copies need source and destination at the same distance from a 16-byte \
                 boundary; they are {} bytes off; use VECTOR",
                apart % 16
            )));
        }
        let most = self.capabilities.shared_memory_per_block;
        let shared = ring_bytes(row.stages, row.stage_bytes)
            .filter(|&bytes| bytes <= most)
            .ok_or_else(|| {
                refuse(format!(
                    "{} bulk copies of {} bytes in flight: each is a positive multiple of 16, and \
                     with a barrier for each they fit the block's {most} bytes of shared memory",
                    row.stages, row.stage_bytes
                ))
            })?;
        Ok((kernel, shared))
    }
}

/// Bytes of dynamic shared memory of a ring of bulk copies; `None` where there is no such ring.
fn ring_bytes(stages: u32, stage_bytes: u32) -> Option<u32> {
    if stages == 0 || stage_bytes == 0 || !stage_bytes.is_multiple_of(16) {
        return None;
    }
    u32::try_from(symmem_kernels_ptx::bulk_shared_memory(stages, stage_bytes)).ok()
}

fn refuse(message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "transfer", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_takes_its_barriers_and_its_stages() {
        assert_eq!(ring_bytes(8, 16 << 10), Some(128 + (128 << 10)));
        assert_eq!(ring_bytes(17, 16), Some(256 + 17 * 16));
        for (stages, bytes) in [(0, 16), (1, 0), (1, 24), (u32::MAX, 16), (2, !15)] {
            assert_eq!(ring_bytes(stages, bytes), None);
        }
    }
}
