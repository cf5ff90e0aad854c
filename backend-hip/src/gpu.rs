//! `Gpu` for HIP; see [`symmem_gpu`].

use crate::current::ContextGuard;
use crate::device::stream;
use crate::instance::HipBackend;
use crate::kernels::Kernel;
use crate::memory::HipSharing;
use crate::runtime::constants::{COPY_DEFAULT, COPY_WITHOUT_COMPUTE_UNITS};
use crate::runtime::{VERSION_6_1, hip};
use crate::{gathered_gemm, hipblaslt, rccl, reduced_gemm};
use std::ffi::{c_int, c_void};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Implementation};
use symmem_gpu::blaslt::BlasLtApi;
use symmem_gpu::nccl::NcclApi;
use symmem_gpu::{Current, Gpu, GpuState, Grid};

impl Current for HipBackend {
    type ContextGuard<'a> = ContextGuard;

    #[inline]
    fn enter(&self) -> CallResult<ContextGuard> {
        self.device.enter()
    }
}

impl Gpu for HipBackend {
    type Kernel = Kernel;
    type Sharing = HipSharing;
    const WARP: u32 = 64;

    fn state(&self) -> &GpuState<Kernel, HipSharing> {
        &self.state
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
        // SAFETY: the caller upholds the contract of `launch_kernel`, which is also the callee's.
        unsafe { self.launch_own(kernel.function(), grid, argument, stream) }
    }

    // HIP has no programmatic dependent launch.
    fn launched_plainly(kernel: Kernel) -> Kernel {
        kernel
    }

    fn blocks_per_unit(&self, kernel: Kernel, threads: u32) -> CallResult<u32> {
        let (runtime, function, mut each) = (self.device.runtime, kernel.function(), 0);
        if threads > self.most_threads(function)? {
            return Ok(0);
        }
        let place = &raw mut each;
        // SAFETY: the out-pointer is writable, and the kernel stays loaded while `self` lives.
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

    unsafe fn copy(&self, transfer: &Transfer, on: RawStream) -> CallResult<()> {
        let (to, from) = (transfer.destination.0, transfer.source.0);
        let (bytes, runtime) = (transfer.bytes as usize, self.device.runtime);
        let kind = copy_kind(runtime.version, transfer.direction);
        // SAFETY: the caller keeps source and destination live until the stream has passed this point.
        unsafe { hip!(runtime, hipMemcpyAsync(to, from, bytes, kind, stream(on))) }
    }

    unsafe fn copy_rows(&self, copy: &RowsCopy, on: RawStream) -> CallResult<()> {
        let (to, to_stride) = (copy.destination.0, copy.destination_stride as usize);
        let (from, from_stride) = (copy.source.0, copy.source_stride as usize);
        let (width, height) = (copy.bytes as usize, copy.rows as usize);
        let runtime = self.device.runtime;
        let kind = copy_kind(runtime.version, copy.direction);
        // SAFETY: the caller keeps both matrices live until the stream has passed this point.
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

    /// Returns `None`: `hipStreamWriteValue32` is a kernel, too.
    unsafe fn stream_write(
        &self,
        _: DeviceAddress,
        _: u32,
        _: RawStream,
    ) -> Option<CallResult<()>> {
        None
    }

    /// Returns `None`: by default `hipStreamWaitValue32` is a kernel that spins without a deadline.
    unsafe fn stream_wait(&self, _: DeviceAddress, _: u32, _: RawStream) -> Option<CallResult<()>> {
        None
    }

    fn tuned_collective(&self, index: u32) -> Option<CollectiveRow> {
        Self::selector_row(index)
    }

    fn nccl() -> CallResult<&'static NcclApi> {
        rccl::library()
    }

    /// Permits every communicator: AMD GPUs have no multicast that RCCL could set up.
    fn check_nccl_permitted() -> CallResult<()> {
        Ok(())
    }

    fn blaslt() -> CallResult<&'static BlasLtApi> {
        hipblaslt::library()
    }

    #[inline]
    fn settle<T>(&self, call: impl FnOnce() -> CallResult<T>) -> CallResult<T> {
        call().inspect_err(|_| self.device.runtime.forget_last_error())
    }

    fn gathered_limits(
        &self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
        tile: u32,
    ) -> GatheredLimits {
        gathered_gemm::limits(self, shape, sharding, shard, tile)
    }

    unsafe fn launch_gathered(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller upholds the contract of `launch_gathered`, which is also the callee's.
        unsafe { gathered_gemm::launch(self, arguments, geometry, on) }
    }

    fn reduced_limits(&self, shape: &GemmLayout, problem: &ReducedProblem) -> ReducedLimits {
        reduced_gemm::limits(self, shape, problem)
    }

    unsafe fn launch_reduced(
        &self,
        arguments: &ReducedGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller upholds the contract of `launch_reduced`, which is the callee's.
        unsafe { reduced_gemm::launch(self, arguments, geometry, on) }
    }
}

/// Returns the `hipMemcpyKind` of a copy. By default the runtime copies to peer memory that was opened by a
/// handle with compute units, so such copies ask for the copy engine. Copies within a device are faster with
/// compute units, and stay at the default, like copies from and to the host.
fn copy_kind(version: u32, direction: DirectionCode) -> u32 {
    match direction {
        DirectionCode::PUT | DirectionCode::GET if version >= VERSION_6_1 => {
            COPY_WITHOUT_COMPUTE_UNITS
        }
        _ => COPY_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_between_devices_leave_the_compute_units_alone_where_the_release_can() {
        let (newer, older) = (VERSION_6_1, VERSION_6_1 - 1);
        for direction in [DirectionCode::PUT, DirectionCode::GET] {
            assert_eq!(copy_kind(newer, direction), COPY_WITHOUT_COMPUTE_UNITS);
            assert_eq!(copy_kind(older, direction), COPY_DEFAULT);
        }
        assert_eq!(copy_kind(newer, DirectionCode::LOCAL), COPY_DEFAULT);
    }
}
