//! What core needs to know of this vendor to launch its kernels; see [`symmem_core::backend::gpu`].

use crate::current::Entered;
use crate::device::stream;
use crate::instance::HipBackend;
use crate::kernels::Kernel;
use crate::memory::HipSharing;
use crate::runtime::constants::COPY_DEFAULT;
use crate::runtime::hip;
use crate::{products, tuning, vendor};
use std::ffi::{c_int, c_void};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_core::backend::gpu::tuning::collective_row;
use symmem_core::backend::gpu::{Current, Gpu, Grid, Parts};
use symmem_core::backend::matrix_library::MatrixLibrary;
use symmem_core::backend::vendor_library::VendorLibrary;

impl Current for HipBackend {
    type Entered<'a> = Entered;

    #[inline]
    fn enter(&self) -> CallResult<Entered> {
        self.device.enter()
    }
}

impl Gpu for HipBackend {
    type Kernel = Kernel;
    type Sharing = HipSharing;
    const WARP: u32 = 64;

    fn parts(&self) -> &Parts<Kernel, HipSharing> {
        &self.parts
    }

    #[inline]
    unsafe fn launch_kernel(
        &self,
        kernel: Kernel,
        grid: Grid,
        argument: *const c_void,
        _bytes: usize,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller's word.
        unsafe { self.launch_own(kernel.function(), grid, argument, stream) }
    }

    fn blocks_per_unit(&self, kernel: Kernel, threads: u32) -> CallResult<u32> {
        let (runtime, function, mut each) = (self.device.runtime, kernel.function(), 0);
        if threads > self.most_threads(function)? {
            return Ok(0);
        }
        let place = &raw mut each;
        // SAFETY: the place is writable and the function live.
        unsafe {
            hip!(
                runtime,
                hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                    place,
                    function,
                    threads as c_int,
                    0
                )
            )
        }?;
        Ok(u32::try_from(each).unwrap_or(0))
    }

    unsafe fn copy(
        &self,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
        on: RawStream,
    ) -> CallResult<()> {
        let (to, from, bytes) = (to.0, from.0, bytes as usize);
        let runtime = self.device.runtime;
        // SAFETY: the caller keeps both ranges live until the stream has passed.
        unsafe {
            hip!(
                runtime,
                hipMemcpyAsync(to, from, bytes, COPY_DEFAULT, stream(on))
            )
        }
    }

    unsafe fn copy_rows(&self, copy: &RowsCopy, on: RawStream) -> CallResult<()> {
        let (to, to_stride) = (copy.destination.0, copy.destination_stride as usize);
        let (from, from_stride) = (copy.source.0, copy.source_stride as usize);
        let (width, height) = (copy.bytes as usize, copy.rows as usize);
        let (runtime, kind) = (self.device.runtime, COPY_DEFAULT);
        // SAFETY: the caller keeps both matrices live until the stream has passed.
        unsafe {
            hip!(
                runtime,
                hipMemcpy2DAsync(
                    to,
                    to_stride,
                    from,
                    from_stride,
                    width,
                    height,
                    kind,
                    stream(on)
                )
            )
        }
    }

    fn bulk_ring_bytes(&self, _stages: u32, _stage_bytes: u32) -> Option<u32> {
        None
    }

    /// By a kernel: `hipStreamWriteValue32` is one too.
    unsafe fn stream_write(
        &self,
        _: DeviceAddress,
        _: u32,
        _: RawStream,
    ) -> Option<CallResult<()>> {
        None
    }

    /// By a kernel: `hipStreamWaitValue32` is by default one that spins and knows no deadline.
    unsafe fn stream_wait(&self, _: DeviceAddress, _: u32, _: RawStream) -> Option<CallResult<()>> {
        None
    }

    fn tuned_collective(&self, index: u32) -> CollectiveRow {
        collective_row(tuning::COLLECTIVES, index)
    }

    fn vendor_library() -> CallResult<&'static VendorLibrary> {
        vendor::library()
    }

    /// AMD's GPUs have no multicast that it could set up.
    fn check_vendor_permitted() -> CallResult<()> {
        Ok(())
    }

    fn matrix_library() -> CallResult<&'static MatrixLibrary> {
        products::library()
    }
}
