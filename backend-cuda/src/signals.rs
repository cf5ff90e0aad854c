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
    unsafe fn signal_step(
        &self,
        _target: &SignalTarget,
        _wait: &SignalWait,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("signal_step")
    }

    unsafe fn word_update(&self, _operation: &WordOperation, _stream: RawStream) -> CallResult<()> {
        refuse("word_update")
    }

    unsafe fn word_wait(&self, _wait: &WordWait, _stream: RawStream) -> CallResult<()> {
        refuse("word_wait")
    }
}

impl Collectives for CudaBackend {
    unsafe fn barrier(&self, barrier: &Barrier, on: RawStream) -> CallResult<()> {
        // SAFETY: the kernel takes a barrier; all it names is live until the stream has passed.
        unsafe { self.launch_struct(self.kernels.barrier, 1, BARRIER_THREADS, 0, barrier, on) }
    }
    fn collective_row(&self, _index: u32) -> CallResult<CollectiveRow> {
        Ok(CollectiveRow::default())
    }

    fn resident_blocks(
        &self,
        _kernel: CollectiveKernel,
        _element: ElementType,
        _threads: u32,
    ) -> CallResult<u32> {
        Ok(0)
    }

    unsafe fn collective_move(
        &self,
        _arguments: &MoveArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_move")
    }

    unsafe fn collective_packets(
        &self,
        _arguments: &PacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_packets")
    }

    unsafe fn collective_reduce(
        &self,
        _arguments: &ReduceArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce")
    }

    unsafe fn collective_reduce_packets(
        &self,
        _arguments: &ReducePacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_packets")
    }

    unsafe fn collective_exchange(
        &self,
        _arguments: &ExchangeArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_exchange")
    }

    fn vendor_description(&self) -> CallResult<VendorDescription> {
        refuse("vendor_description")
    }

    fn vendor_identifier(&self) -> CallResult<VendorIdentifier> {
        refuse("vendor_identifier")
    }

    fn vendor_create(
        &self,
        _identifier: &VendorIdentifier,
        _rank: u32,
        _world: u32,
    ) -> CallResult<RawVendor> {
        refuse("vendor_create")
    }

    unsafe fn vendor_ready(&self, _vendor: RawVendor) -> CallResult<u32> {
        refuse("vendor_ready")
    }

    unsafe fn vendor_call(
        &self,
        _vendor: RawVendor,
        _call: &VendorCall,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("vendor_call")
    }

    fn vendor_group(&self, _open: u32) -> CallResult<()> {
        refuse("vendor_group")
    }

    unsafe fn vendor_register(
        &self,
        _vendor: RawVendor,
        _address: DeviceAddress,
        _bytes: u64,
    ) -> CallResult<u64> {
        refuse("vendor_register")
    }

    unsafe fn vendor_deregister(&self, _vendor: RawVendor, _window: u64) -> CallResult<()> {
        refuse("vendor_deregister")
    }

    unsafe fn vendor_abort(&self, _vendor: RawVendor) -> CallResult<()> {
        refuse("vendor_abort")
    }

    unsafe fn vendor_destroy(&self, _vendor: RawVendor) -> CallResult<()> {
        refuse("vendor_destroy")
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

fn refuse<T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "this backend does not have it yet",
    ))
}
