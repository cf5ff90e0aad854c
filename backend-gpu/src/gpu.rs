//! The trait that a backend for a GPU implements.

use crate::current::Current;
use crate::matrix_library::MatrixLibrary;
use crate::memory::Sharing;
use crate::parts::Parts;
use crate::vendor_library::VendorLibrary;
use std::ffi::c_void;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Multicast};

/// An open GPU. With [`Device`] it is all that core needs for the other traits of the contract.
///
/// Methods that say so are called with the device current.
pub trait Gpu: Device + Multicast + Current {
    /// A loaded kernel.
    type Kernel: Copy;
    /// How memory is shared.
    type Sharing: Sharing;
    /// Threads that run in step: a warp, a wavefront.
    const WARP: u32;

    /// What is the same on every vendor.
    fn parts(&self) -> &Parts<Self::Kernel, Self::Sharing>;

    /// Launches a kernel that takes one struct by value: the `bytes` at `argument`, copied before the
    /// call returns. A grid of one dimension.
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
    /// Most blocks of `threads` threads, whole warps, that one compute unit has at once; 0 for more
    /// threads than the kernel was compiled for. Device current.
    fn blocks_per_unit(&self, kernel: Self::Kernel, threads: u32) -> CallResult<u32>;

    /// Copies by the copy engine, between any two addresses that the device knows, and gives no signal.
    /// Device current.
    ///
    /// # Safety
    /// Both ranges are live until the stream has passed this point.
    unsafe fn copy(&self, transfer: &Transfer, on: RawStream) -> CallResult<()>;
    /// Copies rows by the copy engine, as [`Gpu::copy`] does bytes. Device current.
    ///
    /// # Safety
    /// As [`Gpu::copy`].
    unsafe fn copy_rows(&self, copy: &RowsCopy, on: RawStream) -> CallResult<()>;
    /// Bytes of dynamic shared memory of a ring of bulk copies; `None` where there is no such ring.
    fn bulk_ring_bytes(&self, stages: u32, stage_bytes: u32) -> Option<u32>;

    /// Makes the stream write a word itself, once its earlier work is visible to the whole system;
    /// `None` on a vendor whose streams need a kernel for that.
    ///
    /// # Safety
    /// Both are live until the stream has passed this point.
    unsafe fn stream_write(
        &self,
        word: DeviceAddress,
        value: u32,
        on: RawStream,
    ) -> Option<CallResult<()>>;
    /// Makes the stream wait itself until a word has reached a value, wrapping; `None` on a vendor
    /// whose streams need a kernel for that.
    ///
    /// # Safety
    /// As [`Gpu::stream_write`].
    unsafe fn stream_wait(
        &self,
        word: DeviceAddress,
        value: u32,
        on: RawStream,
    ) -> Option<CallResult<()>>;

    /// Row `index` of the selector's table for this device; see [`symmem_core::backend::Collectives::collective_row`].
    fn tuned_collective(&self, index: u32) -> Option<CollectiveRow>;

    /// The vendor's library of collectives, opened by the first call.
    ///
    /// # Errors
    /// `LIBRARY_MISSING`, with where it was looked for and what to do.
    fn vendor_library() -> CallResult<&'static VendorLibrary>;
    /// Refuses a communicator of it, where the site must not have one.
    ///
    /// # Errors
    /// `UNSUPPORTED`, with the reason.
    fn check_vendor_permitted() -> CallResult<()>;
    /// The vendor's library of matrix products, opened by the first call.
    ///
    /// # Errors
    /// `LIBRARY_MISSING`, with where it was looked for and what to do.
    fn matrix_library() -> CallResult<&'static MatrixLibrary>;
    /// Calls the library of products, which calls the runtime on this thread: of a failure nothing is left there
    /// for others to find.
    ///
    /// # Errors
    /// The call's.
    fn settle<T>(&self, call: impl FnOnce() -> CallResult<T>) -> CallResult<T>;
    /// See [`symmem_core::backend::Gemm::gathered_gemm_limits`].
    fn gathered_limits(&self, shape: &GemmShape, sharding: Sharding, shard: u64) -> GatheredLimits;
    /// See [`symmem_core::backend::Gemm::gathered_gemm`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    unsafe fn launch_gathered(
        &self,
        arguments: &GatheredGemmArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()>;
}

/// Blocks, threads of each, and bytes of dynamic shared memory.
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
    /// Without dynamic shared memory.
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            shared_memory: 0,
        }
    }
}

/// [`Gpu::launch_kernel`], of a struct.
///
/// # Safety
/// As there; `T` is what the kernel takes.
#[inline]
pub(crate) unsafe fn launch<G: Gpu, T>(
    gpu: &G,
    kernel: G::Kernel,
    grid: Grid,
    argument: &T,
    on: RawStream,
) -> CallResult<()> {
    let bytes = std::ptr::from_ref(argument).cast();
    // SAFETY: the caller's word; the struct's bytes are readable.
    unsafe { gpu.launch_kernel(kernel, grid, bytes, size_of::<T>(), on) }
}
