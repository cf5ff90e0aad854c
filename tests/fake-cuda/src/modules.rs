//! Modules and the functions in them.

use std::ffi::{c_char, c_int, c_void};

use fake_device::call::put;
use fake_device::error::Code;
use fake_device::{api, modules};

use crate::devices;
use crate::image;
use crate::launch::LaunchConfiguration;

api! {
    fn [cuModuleUnload](module: u64) { modules::unload(module) }
    fn [cuFuncSetAttribute](function: u64, attribute: u32, value: c_int) {
        modules::set_attribute(function, attribute, value)
    }
    fn [cuFuncGetAttribute](out: Option<&mut c_int>, attribute: u32, function: u64) {
        modules::attribute(out, attribute, function)
    }
    fn [cuFuncLoad](function: u64) { modules::load_function(function) }
    fn [cuFuncIsLoaded](state: Option<&mut c_int>, function: u64) { modules::is_loaded(state, function) }
    fn [cuOccupancyMaxActiveBlocksPerMultiprocessor](
        blocks: Option<&mut c_int>, function: u64, threads: c_int, dynamic_shared: usize,
    ) {
        modules::occupancy(blocks, function, threads, dynamic_shared)
    }
    fn [cuOccupancyMaxActiveClusters](
        clusters: Option<&mut c_int>, function: u64, configuration: Option<&LaunchConfiguration>,
    ) {
        let configuration = configuration.ok_or(Code::INVALID_VALUE)?;
        let cluster = configuration.cluster()?;
        let LaunchConfiguration { threads, shared, .. } = *configuration;
        let mut each = 0;
        let threads = threads.iter().product::<u32>() as c_int;
        modules::occupancy(Some(&mut each), function, threads, shared as usize)?;
        let short = devices::short_gpcs() == Some(modules::device(function)?);
        // A cluster lies in one GPC.
        let of_gpc = |units: c_int| (units - c_int::from(short)) * each / cluster as c_int;
        put(clusters, devices::gpcs().map(of_gpc).sum())
    }
}
api! { unsafe;
    fn [cuModuleLoadData](out: Option<&mut u64>, image: *const c_void) {
        // SAFETY: the caller promises a cubin or zero-terminated PTX.
        modules::load(out, || unsafe { image::read(image.cast()) })
    }
    fn [cuModuleLoadDataEx](
        out: Option<&mut u64>, image: *const c_void, _count: u32, _options: *const u32, _values: *const *mut c_void,
    ) {
        // SAFETY: the caller promises a cubin or zero-terminated PTX.
        modules::load(out, || unsafe { image::read(image.cast()) })
    }
    fn [cuModuleGetFunction](out: Option<&mut u64>, module: u64, name: *const c_char) {
        // SAFETY: the caller promises a zero-terminated name.
        unsafe { modules::find_function(out, module, name) }
    }
}
