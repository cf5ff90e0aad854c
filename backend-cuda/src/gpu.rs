//! The trait [`Gpu`] for CUDA.

use crate::context::ContextGuard;
use crate::device::stream;
use crate::driver::call;
use crate::driver::constants::{
    FUNCTION_MAX_THREADS_PER_BLOCK, WAIT_VALUE_GEQ, WRITE_VALUE_DEFAULT,
};
use crate::instance::CudaBackend;
use crate::kernels::Kernel;
use crate::memory::CudaSharing;
use crate::{cublaslt, gathered_gemm, nccl, reduced_gemm};
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, Implementation};
use symmem_gpu::blaslt::BlasLtApi;
use symmem_gpu::nccl::NcclApi;
use symmem_gpu::{Current, Gpu, GpuState, Grid};

impl Current for CudaBackend {
    type ContextGuard<'a> = ContextGuard<'a>;

    #[inline]
    fn enter(&self) -> CallResult<ContextGuard<'_>> {
        self.context.enter()
    }
}

impl Gpu for CudaBackend {
    type Kernel = Kernel;
    type Sharing = CudaSharing;
    const WARP: u32 = 32;

    fn state(&self) -> &GpuState<Kernel, CudaSharing> {
        &self.state
    }

    #[inline]
    unsafe fn launch_kernel(
        &self,
        kernel: Kernel,
        grid: Grid,
        argument: *const c_void,
        bytes: usize,
        on: RawStream,
    ) -> CallResult<()> {
        if kernel.beside {
            // SAFETY: the caller upholds the contract, and a kernel marked `beside` waits for its predecessor itself.
            return unsafe { self.launch_beside(kernel.function, grid, argument, bytes, on) };
        }
        let geometry = Geometry {
            blocks: [grid.blocks, 1, 1],
            threads: [grid.threads, 1, 1],
            shared_memory: grid.shared_memory,
        };
        // SAFETY: a struct passed by value has the same layout in the parameter buffer as in memory. The caller
        // upholds the rest of the contract.
        unsafe { self.launch_packed(kernel.function, &geometry, argument, bytes, on) }
    }

    fn launched_plainly(kernel: Kernel) -> Kernel {
        Kernel {
            beside: false,
            ..kernel
        }
    }

    fn blocks_per_unit(&self, kernel: Kernel, threads: u32) -> CallResult<u32> {
        let (function, mut each, mut most) = (kernel.function, 0, 0);
        let threads = threads as c_int;
        // SAFETY: the out-pointers are writable, and the function is live while `self` lives.
        unsafe {
            call!(
                self.driver,
                cuFuncGetAttribute(&raw mut most, FUNCTION_MAX_THREADS_PER_BLOCK, function)
            )?;
            // If the kernel was compiled for fewer threads, the occupancy call may fail or not, so it is skipped.
            if threads <= most {
                call!(
                    self.driver,
                    cuOccupancyMaxActiveBlocksPerMultiprocessor(
                        &raw mut each,
                        function,
                        threads,
                        0
                    )
                )?;
            }
        }
        Ok(u32::try_from(each).unwrap_or(0))
    }

    unsafe fn copy(&self, transfer: &Transfer, on: RawStream) -> CallResult<()> {
        let (to, from) = (transfer.destination.0, transfer.source.0);
        let bytes = transfer.bytes as usize;
        // `cuMemcpyAsync` takes any pair of unified addresses, so this also copies to and from registered host memory.
        // SAFETY: the caller keeps both ranges live until the stream has passed this point.
        unsafe { call!(self.driver, cuMemcpyAsync(to, from, bytes, stream(on))) }
    }

    unsafe fn copy_rows(&self, copy: &RowsCopy, on: RawStream) -> CallResult<()> {
        // With unified addresses the driver ignores the array and host pointers.
        let rows = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcHost: null(),
            srcDevice: copy.source.0,
            srcArray: null_mut(),
            srcPitch: copy.source_stride as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            dstHost: null_mut(),
            dstDevice: copy.destination.0,
            dstArray: null_mut(),
            dstPitch: copy.destination_stride as usize,
            WidthInBytes: copy.bytes as usize,
            Height: copy.rows as usize,
        };
        // SAFETY: the caller keeps both matrices live until the stream has passed this point, and the driver
        // reads the description before it returns.
        unsafe { call!(self.driver, cuMemcpy2DAsync_v2(&raw const rows, stream(on))) }
    }

    fn bulk_ring_bytes(&self, stages: u32, stage_bytes: u32) -> Option<u32> {
        u32::try_from(symmem_kernels_ptx::bulk_shared_memory(stages, stage_bytes)).ok()
    }

    unsafe fn stream_write(
        &self,
        word: DeviceAddress,
        value: u32,
        on: RawStream,
    ) -> Option<CallResult<()>> {
        let name = "cuStreamWriteValue32_v2";
        let Some(write) = self.driver.table.cuStreamWriteValue32_v2 else {
            return Some(Err(no_stream_memory_operations(name)));
        };
        Some(self.enter().and_then(|_entered| {
            // SAFETY: the caller keeps word and stream live until the stream has passed this point.
            let code = unsafe { write(stream(on), word.0, value, WRITE_VALUE_DEFAULT) };
            self.driver.check(name, code)
        }))
    }

    unsafe fn stream_wait(
        &self,
        word: DeviceAddress,
        value: u32,
        on: RawStream,
    ) -> Option<CallResult<()>> {
        let name = "cuStreamWaitValue32_v2";
        let Some(wait) = self.driver.table.cuStreamWaitValue32_v2 else {
            return Some(Err(no_stream_memory_operations(name)));
        };
        Some(self.enter().and_then(|_entered| {
            // SAFETY: the caller keeps word and stream live until the stream has passed this point.
            let code = unsafe { wait(stream(on), word.0, value, WAIT_VALUE_GEQ) };
            self.driver.check(name, code)
        }))
    }

    fn tuned_collective(&self, index: u32) -> Option<CollectiveRow> {
        Self::selector_row(index)
    }

    fn nccl() -> CallResult<&'static NcclApi> {
        nccl::library()
    }

    fn check_nccl_permitted() -> CallResult<()> {
        nccl::check_permitted()
    }

    fn blaslt() -> CallResult<&'static BlasLtApi> {
        cublaslt::library()
    }

    #[inline]
    fn settle<T>(&self, call: impl FnOnce() -> CallResult<T>) -> CallResult<T> {
        call()
    }

    fn gathered_limits(
        &self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
        tile: u32,
    ) -> GatheredLimits {
        let limits = gathered_gemm::limits(self, shape, sharding, shard);
        // There is one tile for each shape.
        match tile == 0 || tile == limits.tile_m << 16 | limits.tile_n {
            true => limits,
            false => GatheredLimits::default(),
        }
    }

    unsafe fn launch_gathered(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller upholds the contract of `launch_gathered`, which is the callee's.
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

fn no_stream_memory_operations(call: &str) -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        call,
        "this driver has no stream memory operations; use signals in device memory, which kernels \
         wait for, or update the driver",
    )
}
