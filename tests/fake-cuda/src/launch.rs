//! Launching kernels.

use std::ffi::c_void;

use fake_device::api;
use fake_device::error::Code;
use fake_device::launch::{Grid, kernel};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfiguration {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The stream.
    pub stream: u64,
    /// Attributes; none of them changes what a fake does.
    pub attributes: *const c_void,
    /// How many.
    pub attribute_count: u32,
}

api! { unsafe;
    fn [cuLaunchKernel](
        function: u64,
        blocks_x: u32, blocks_y: u32, blocks_z: u32,
        threads_x: u32, threads_y: u32, threads_z: u32,
        shared: u32, stream: u64,
        parameters: *const *const u8, extra: *const *const c_void,
    ) {
        let blocks = [blocks_x, blocks_y, blocks_z];
        let grid = Grid { blocks, threads: [threads_x, threads_y, threads_z], shared };
        // SAFETY: the caller promises arguments as the driver takes them.
        unsafe { kernel(function, grid, stream, parameters, extra) }
    }
    fn [cuLaunchKernelEx](
        configuration: Option<&LaunchConfiguration>, function: u64,
        parameters: *const *const u8, extra: *const *const c_void,
    ) {
        let configuration = configuration.ok_or(Code::INVALID_VALUE)?;
        let LaunchConfiguration { blocks, threads, shared, stream, .. } = *configuration;
        // SAFETY: the caller promises arguments as the driver takes them.
        unsafe { kernel(function, Grid { blocks, threads, shared }, stream, parameters, extra) }
    }
}
