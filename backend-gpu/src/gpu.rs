//! The trait that the CUDA and HIP backends implement.

use crate::blaslt::BlasLtApi;
use crate::current::Current;
use crate::memory::Sharing;
use crate::nccl::NcclApi;
use crate::state::GpuState;
use std::ffi::c_void;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Multicast};

/// An open GPU: the mechanism from which [`OpenGpu`](crate::OpenGpu) builds the remaining traits of the contract.
///
/// Methods marked "Device current." must be called with the device current on the calling thread.
pub trait Gpu: Device + Multicast + Current {
    /// A loaded kernel.
    type Kernel: Copy;
    /// How memory is allocated and shared.
    type Sharing: Sharing;
    /// Threads of a warp (CUDA) or wavefront (HIP).
    const WARP: u32;

    /// Returns the state that is the same on every vendor.
    fn state(&self) -> &GpuState<Self::Kernel, Self::Sharing>;

    /// Launches a one-dimensional grid of a kernel that takes one struct by value: the `bytes` bytes at
    /// `argument`, which are copied before the call returns.
    ///
    /// # Safety
    /// As [`Device::launch`].
    unsafe fn launch_kernel(
        &self,
        kernel: Self::Kernel,
        grid: Grid,
        argument: *const c_void,
        bytes: usize,
        on: RawStream,
    ) -> CallResult<()>;
    /// Returns the kernel without programmatic dependent launch: [`Gpu::launch_kernel`] starts it after the end of the
    /// stream's previous kernel.
    fn launched_plainly(kernel: Self::Kernel) -> Self::Kernel;
    /// Returns the most blocks of `threads` threads that are resident on one SM or compute unit at once; 0 if
    /// the kernel was compiled for fewer threads. `threads` is a multiple of [`Gpu::WARP`]. Device current.
    fn blocks_per_unit(&self, kernel: Self::Kernel, threads: u32) -> CallResult<u32>;

    /// Enqueues a copy by the copy engine between any two addresses that the device can reach, without its
    /// signal. Device current.
    ///
    /// # Safety
    /// Both ranges are live until the stream has passed this point.
    unsafe fn copy(&self, transfer: &Transfer, on: RawStream) -> CallResult<()>;
    /// Enqueues a copy of rows by the copy engine, as [`Gpu::copy`] does for bytes. Device current.
    ///
    /// # Safety
    /// As [`Gpu::copy`].
    unsafe fn copy_rows(&self, copy: &RowsCopy, on: RawStream) -> CallResult<()>;
    /// Returns the bytes of dynamic shared memory that a ring of bulk copies takes, or `None` if the device has
    /// no bulk copies or the size overflows.
    fn bulk_ring_bytes(&self, stages: u32, stage_bytes: u32) -> Option<u32>;

    /// Enqueues a write of a word by the stream itself, visible after the stream's earlier work in system
    /// scope. `None` on a vendor whose streams need a kernel for that.
    ///
    /// # Safety
    /// The word and the stream are live until the stream has passed this point.
    unsafe fn stream_write(
        &self,
        word: DeviceAddress,
        value: u32,
        on: RawStream,
    ) -> Option<CallResult<()>>;
    /// Enqueues a wait of the stream itself until a word has reached a value, in wrapping arithmetic. `None` on
    /// a vendor whose streams need a kernel for that.
    ///
    /// # Safety
    /// As [`Gpu::stream_write`].
    unsafe fn stream_wait(
        &self,
        word: DeviceAddress,
        value: u32,
        on: RawStream,
    ) -> Option<CallResult<()>>;

    /// Returns row `index` of the selector's table for this device; see
    /// [`symmem_core::backend::CollectiveKernels::collective_row`].
    fn tuned_collective(&self, index: u32) -> Option<CollectiveRow>;

    /// Returns NCCL or RCCL; the first call opens it.
    ///
    /// # Errors
    /// `LIBRARY_MISSING`, with the places searched and what to do.
    fn nccl() -> CallResult<&'static NcclApi>;
    /// Checks that a communicator of NCCL or RCCL may be created in this process.
    ///
    /// # Errors
    /// `UNSUPPORTED`, with the reason.
    fn check_nccl_permitted() -> CallResult<()>;
    /// Returns cuBLASLt or hipBLASLt; the first call opens it.
    ///
    /// # Errors
    /// `LIBRARY_MISSING`, with the places searched and what to do.
    fn blaslt() -> CallResult<&'static BlasLtApi>;
    /// Runs a call of cuBLASLt or hipBLASLt, which may call the runtime on this thread. If it fails, clears the
    /// runtime's last error on this thread, so that nobody else finds it.
    ///
    /// # Errors
    /// The call's failure.
    fn settle<T>(&self, call: impl FnOnce() -> CallResult<T>) -> CallResult<T>;
    /// See [`symmem_core::backend::Gemm::gathered_gemm_limits`]; without blocks if there is no kernel with the tile, of which
    /// [`GatheredGemmArguments::tile`] says more.
    fn gathered_limits(
        &self,
        shape: &GemmLayout,
        sharding: ShardingCode,
        shard: u64,
        tile: u32,
    ) -> GatheredLimits;
    /// See [`symmem_core::backend::Gemm::gathered_gemm`].
    ///
    /// # Errors
    /// The same as there.
    ///
    /// # Safety
    /// The same as there.
    unsafe fn launch_gathered(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()>;
    /// See [`symmem_core::backend::Gemm::reduced_gemm_limits`]; limits with 0 blocks if there is no kernel.
    fn reduced_limits(&self, shape: &GemmLayout, problem: &ReducedProblem) -> ReducedLimits;
    /// See [`symmem_core::backend::Gemm::reduced_gemm`].
    ///
    /// # Errors
    /// The same as there.
    ///
    /// # Safety
    /// The same as there.
    unsafe fn launch_reduced(
        &self,
        arguments: &ReducedGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()>;
}

/// A one-dimensional grid.
#[derive(Clone, Copy)]
pub struct Grid {
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_memory: u32,
}

impl Grid {
    /// Returns a grid without dynamic shared memory.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            shared_memory: 0,
        }
    }
}

/// Launches a kernel with a struct as its argument; see [`Gpu::launch_kernel`].
///
/// # Safety
/// As [`Gpu::launch_kernel`]; the kernel's argument is a `T`.
#[inline]
pub(crate) unsafe fn launch<G: Gpu, T>(
    gpu: &G,
    kernel: G::Kernel,
    grid: Grid,
    argument: &T,
    on: RawStream,
) -> CallResult<()> {
    let bytes = std::ptr::from_ref(argument).cast();
    // SAFETY: the caller upholds the contract of `launch_kernel`; a reference's bytes are readable.
    unsafe { gpu.launch_kernel(kernel, grid, bytes, size_of::<T>(), on) }
}
