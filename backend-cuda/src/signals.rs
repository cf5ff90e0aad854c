//! Signals and words: by a kernel, or by the stream itself.
//!
//! A stream can write and wait for a word without a kernel, but the value is frozen when the work is
//! captured. So the stream does it where the host counts (`epoch` 0) and nothing is being captured,
//! and a kernel does it where the count lives on the device.

use crate::device::stream;
use crate::driver::constants::{WAIT_VALUE_GEQ, WRITE_VALUE_DEFAULT};
use crate::instance::CudaBackend;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Failure, Signals};

/// Threads of the kernels that give a signal or wait for one: a warp, of which one thread acts.
const SIGNAL_THREADS: u32 = 32;
/// Threads of the kernel that waits for words: each looks at its share of them.
const WORD_WAIT_THREADS: u32 = 128;

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
        unsafe { self.launch_own(self.kernels.signal, 1, SIGNAL_THREADS, 0, target, on) }
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
        unsafe { self.launch_own(self.kernels.wait, 1, SIGNAL_THREADS, 0, wait, on) }
    }

    unsafe fn signal_step(
        &self,
        target: &SignalTarget,
        wait: &SignalWait,
        on: RawStream,
    ) -> CallResult<()> {
        let step = StepArguments {
            target: *target,
            wait: *wait,
        };
        // SAFETY: the kernel takes a step; all it names is live until the stream has passed.
        unsafe { self.launch_own(self.kernels.step, 1, SIGNAL_THREADS, 0, &step, on) }
    }

    unsafe fn word_update(&self, operation: &WordOperation, on: RawStream) -> CallResult<()> {
        if operation.update > WordUpdate::COMPARE_SWAP || !is_width(operation.bits) {
            return Err(invalid(
                "word_update",
                format!(
                    "update {} of {} bits: there are updates {} to {}, of 32 and 64 bits",
                    operation.update.0,
                    operation.bits,
                    WordUpdate::FETCH.0,
                    WordUpdate::COMPARE_SWAP.0
                ),
            ));
        }
        let kernel = self.kernels.word_update;
        // SAFETY: the kernel takes an operation; its words are live until the stream has passed.
        unsafe { self.launch_own(kernel, 1, SIGNAL_THREADS, 0, operation, on) }
    }

    unsafe fn word_wait(&self, wait: &WordWait, on: RawStream) -> CallResult<()> {
        let known = (Condition::EQUAL..=Condition::LESS).contains(&wait.condition);
        if wait.count == 0 || !known || !is_width(wait.bits) {
            return Err(invalid(
                "word_wait",
                format!(
                    "{} words of {} bits, condition {}: a wait is for at least one word of 32 or 64 \
                     bits and has a condition from {} to {}",
                    wait.count,
                    wait.bits,
                    wait.condition.0,
                    Condition::EQUAL.0,
                    Condition::LESS.0
                ),
            ));
        }
        let kernel = self.kernels.word_wait;
        // SAFETY: the kernel takes a wait; all it names is live until the stream has passed.
        unsafe { self.launch_own(kernel, 1, WORD_WAIT_THREADS, 0, wait, on) }
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

fn is_width(bits: u32) -> bool {
    bits == 32 || bits == 64
}

fn invalid(call: &'static str, message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, call, message)
}
