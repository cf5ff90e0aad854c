//! Signals and words, by a kernel or by a memory operation of the stream.
//!
//! A stream can write and wait for a word without a kernel, but a capture freezes the value. So the stream does
//! it if the host counts (`epoch` 0) and nothing is being captured. A kernel does it if the count is in device
//! memory, or if the vendor's streams would use a kernel anyway: symmem's own kernel leaves at its deadline.

use crate::gpu::{Gpu, Grid, launch};
use crate::open::OpenGpu;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, Signals};

/// Threads of the kernel that waits for words; each polls a share of them.
const WORD_WAIT_THREADS: u32 = 128;

/// A grid of one warp, of which one thread acts.
const fn one_warp<G: Gpu>() -> Grid {
    Grid::new(1, G::WARP)
}

impl<G: Gpu> Signals for OpenGpu<G> {
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        placement: SignalPlacementCode,
        on: RawStream,
    ) -> CallResult<()> {
        let _entered = self.enter()?;
        let by_stream = match placement {
            SignalPlacementCode::HOST => true,
            // SAFETY: the caller passes a live stream.
            _ if self.state().has(CAPABILITY_STREAM_WAIT) && target.epoch.0 == 0 => unsafe {
                !self.stream_capturing(on)?
            },
            _ => false,
        };
        if by_stream
            // SAFETY: the caller keeps the word live until the stream has passed this point.
            && let Some(written) = unsafe { self.stream_write(target.word, target.value, on) }
        {
            return written;
        }
        // SAFETY: the kernel's argument is this target, and the caller keeps its words live.
        unsafe {
            launch(
                &self.0,
                self.state().kernels.signal,
                one_warp::<G>(),
                target,
                on,
            )
        }
    }

    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        placement: SignalPlacementCode,
        on: RawStream,
    ) -> CallResult<()> {
        if placement == SignalPlacementCode::HOST
            // SAFETY: the caller keeps the word live until the stream has passed this point.
            && let Some(waits) = unsafe { self.stream_wait(wait.word, wait.value, on) }
        {
            return waits;
        }
        // SAFETY: the kernel's argument is this wait, and the caller keeps all that it points to live.
        unsafe {
            launch(
                &self.0,
                self.state().kernels.wait,
                one_warp::<G>(),
                wait,
                on,
            )
        }
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
        // SAFETY: the kernel's argument is this step, and the caller keeps all that it points to live.
        unsafe {
            launch(
                &self.0,
                self.state().kernels.step,
                one_warp::<G>(),
                &step,
                on,
            )
        }
    }

    unsafe fn word_update(&self, operation: &WordOperation, on: RawStream) -> CallResult<()> {
        if operation.update > WordUpdate::COMPARE_SWAP || !is_width(operation.bits) {
            return Err(invalid(
                "word_update",
                format!(
                    "update {} of {} bits is unknown; use update {} to {} on 32 or 64 bits",
                    operation.update.0,
                    operation.bits,
                    WordUpdate::FETCH.0,
                    WordUpdate::COMPARE_SWAP.0
                ),
            ));
        }
        let kernel = self.state().kernels.word_update;
        // SAFETY: the kernel's argument is this operation, and the caller keeps its words live.
        unsafe { launch(&self.0, kernel, one_warp::<G>(), operation, on) }
    }

    unsafe fn word_wait(&self, wait: &WordWait, on: RawStream) -> CallResult<()> {
        let known = (ConditionCode::EQUAL..=ConditionCode::LESS).contains(&wait.condition);
        if wait.count == 0 || !known || !is_width(wait.bits) {
            return Err(invalid(
                "word_wait",
                format!(
                    "{} words of {} bits, condition {}: wait for at least one word of 32 or 64 bits, \
                     with a condition from {} to {}",
                    wait.count,
                    wait.bits,
                    wait.condition.0,
                    ConditionCode::EQUAL.0,
                    ConditionCode::LESS.0
                ),
            ));
        }
        let (kernel, grid) = (
            self.state().kernels.word_wait,
            Grid::new(1, WORD_WAIT_THREADS),
        );
        // SAFETY: the kernel's argument is this wait, and the caller keeps all that it points to live.
        unsafe { launch(&self.0, kernel, grid, wait, on) }
    }
}

fn is_width(bits: u32) -> bool {
    bits == 32 || bits == 64
}

fn invalid(call: &'static str, message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, call, message)
}
