//! Signals and the barrier: by a kernel, or by the stream itself.
//!
//! A stream can write and wait for a word without a kernel, but the value is frozen when the work is
//! captured. So the stream does it where the host counts (`epoch` 0) and nothing is being captured,
//! and a kernel does it where the count lives on the device.

use crate::device::stream;
use crate::driver::constants::{WAIT_VALUE_GEQ, WRITE_VALUE_DEFAULT};
use crate::instance::CudaBackend;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Collectives, Device, Failure, Signals};

/// Threads of the kernels that give a signal or wait for one: a warp, of which one thread acts.
const SIGNAL_THREADS: u32 = 32;
/// Threads of the barrier's block: one for each peer, [`MAX_RANKS`] rounded up to whole warps.
const BARRIER_THREADS: u32 = 128;
const _: () = assert!(BARRIER_THREADS as usize >= MAX_RANKS && BARRIER_THREADS.is_multiple_of(32));

impl Signals for CudaBackend {
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        placement: SignalPlacement,
        on: RawStream,
    ) -> CallResult<()> {
        let _entered = self.enter()?;
        let by_stream = match placement {
            SignalPlacement::HOST => true,
            // SAFETY: the stream is live.
            _ if self.has(CAPABILITY_STREAM_WAIT) && target.epoch.0 == 0 => unsafe {
                self.stream_capturing(on)? == 0
            },
            _ => false,
        };
        if by_stream {
            // SAFETY: the word is live until the stream has passed.
            return unsafe { self.stream_write(target.word, target.value, on) };
        }
        // SAFETY: the kernel takes a target; its words are live until the stream has passed.
        unsafe { self.launch_struct(self.kernels.signal, 1, SIGNAL_THREADS, 0, target, on) }
    }

    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        placement: SignalPlacement,
        on: RawStream,
    ) -> CallResult<()> {
        if placement == SignalPlacement::HOST {
            // SAFETY: the word is live until the stream has passed.
            return unsafe { self.stream_wait(wait.word, wait.value, on) };
        }
        // SAFETY: the kernel takes a wait; all it names is live until the stream has passed.
        unsafe { self.launch_struct(self.kernels.wait, 1, SIGNAL_THREADS, 0, wait, on) }
    }
}

impl Collectives for CudaBackend {
    unsafe fn barrier(&self, barrier: &Barrier, on: RawStream) -> CallResult<()> {
        // SAFETY: the kernel takes a barrier; all it names is live until the stream has passed.
        unsafe { self.launch_struct(self.kernels.barrier, 1, BARRIER_THREADS, 0, barrier, on) }
    }
}

impl CudaBackend {
    /// Makes the stream write a word once its earlier work is visible to the whole system.
    ///
    /// # Safety
    /// Both are live until the stream has passed.
    unsafe fn stream_write(
        &self,
        word: DeviceAddress,
        value: u32,
        on: RawStream,
    ) -> CallResult<()> {
        let Some(write) = self.driver.table.cuStreamWriteValue32_v2 else {
            return Err(no_stream_memory_operations("cuStreamWriteValue32_v2"));
        };
        let _entered = self.enter()?;
        // SAFETY: the caller keeps word and stream live.
        let code = unsafe { write(stream(on), word.0, value, WRITE_VALUE_DEFAULT) };
        self.driver.check("cuStreamWriteValue32_v2", code)
    }

    /// Makes the stream wait until a word has reached a value, wrapping.
    ///
    /// # Safety
    /// Both are live until the stream has passed.
    unsafe fn stream_wait(&self, word: DeviceAddress, value: u32, on: RawStream) -> CallResult<()> {
        let Some(wait) = self.driver.table.cuStreamWaitValue32_v2 else {
            return Err(no_stream_memory_operations("cuStreamWaitValue32_v2"));
        };
        let _entered = self.enter()?;
        // SAFETY: the caller keeps word and stream live.
        let code = unsafe { wait(stream(on), word.0, value, WAIT_VALUE_GEQ) };
        self.driver.check("cuStreamWaitValue32_v2", code)
    }
}

fn no_stream_memory_operations(call: &str) -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        call,
        "this driver has no stream memory operations; use signals in device memory, which kernels \
         wait for, or update the driver",
    )
}
