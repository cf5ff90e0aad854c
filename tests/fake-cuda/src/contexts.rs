//! Primary contexts: references, each thread's current context, peers.

use std::ffi::c_int;

use fake_device::{api, contexts};

api! {
    fn [cuDevicePrimaryCtxRetain](out: Option<&mut u64>, ordinal: c_int) { contexts::retain(out, ordinal) }
    fn [cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2](ordinal: c_int) {
        contexts::release(ordinal)
    }
    fn [cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2](ordinal: c_int) { contexts::reset(ordinal) }
    fn [cuDevicePrimaryCtxGetState](ordinal: c_int, flags: Option<&mut u32>, active: Option<&mut c_int>) {
        contexts::is_retained(ordinal, flags, active)
    }
    fn [cuCtxSetCurrent](context: u64) { contexts::set_current(context) }
    fn [cuCtxGetCurrent](out: Option<&mut u64>) { contexts::current(out) }
    fn [cuCtxPushCurrent_v2](context: u64) { contexts::push(context) }
    fn [cuCtxPopCurrent_v2](out: Option<&mut u64>) { contexts::pop(out) }
    fn [cuCtxGetDevice](out: Option<&mut c_int>) { contexts::current_device(out) }
    fn [cuCtxGetStreamPriorityRange](least: Option<&mut c_int>, greatest: Option<&mut c_int>) {
        contexts::priorities(least, greatest)
    }
    fn [cuCtxSynchronize]() { contexts::synchronize() }
    fn [cuCtxEnablePeerAccess](peer: u64, flags: u32) { contexts::enable_peer(peer, flags) }
    fn [cuCtxDisablePeerAccess](peer: u64) { contexts::disable_peer(peer) }
}
