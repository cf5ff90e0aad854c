//! Modules, their functions, and kernel launches.

use std::ffi::{c_char, c_int, c_void};

use fake_device::launch::{Grid, kernel};
use fake_device::{api, modules};

use crate::code_object;

api! {
    fn [hipModuleUnload](module: u64) { modules::unload(module) }
    fn [hipFuncGetAttribute](out: Option<&mut c_int>, attribute: u32, function: u64) {
        modules::attribute(out, attribute, function)
    }
    fn [hipModuleOccupancyMaxActiveBlocksPerMultiprocessor](
        blocks: Option<&mut c_int>, function: u64, threads: c_int, dynamic_shared: usize,
    ) {
        modules::occupancy(blocks, function, threads, dynamic_shared)
    }
}
api! { unsafe;
    fn [hipModuleLoadData](out: Option<&mut u64>, image: *const c_void) {
        // SAFETY: the caller promises a whole code object.
        modules::load(out, || unsafe { code_object::read(image.cast()) })
    }
    fn [hipModuleGetFunction](out: Option<&mut u64>, module: u64, name: *const c_char) {
        // SAFETY: the caller promises a zero-terminated name.
        unsafe { modules::find_function(out, module, name) }
    }
    fn [hipModuleLaunchKernel](
        function: u64,
        blocks_x: u32, blocks_y: u32, blocks_z: u32,
        threads_x: u32, threads_y: u32, threads_z: u32,
        shared: u32, stream: u64,
        parameters: *const *const u8, extra: *const *const c_void,
    ) {
        let blocks = [blocks_x, blocks_y, blocks_z];
        let grid = Grid { blocks, threads: [threads_x, threads_y, threads_z], shared };
        // SAFETY: the caller promises arguments in a form that the runtime accepts.
        unsafe { kernel(function, grid, stream, parameters, extra) }
    }
}
