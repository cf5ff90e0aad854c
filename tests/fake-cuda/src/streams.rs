//! Streams: ordered work.

use fake_device::{api, streams};

api! {
    fn [cuStreamCreate](out: Option<&mut u64>, flags: u32) { streams::create(out, flags) }
    fn [cuStreamCreateWithPriority](out: Option<&mut u64>, flags: u32, _priority: i32) {
        streams::create(out, flags)
    }
    fn [cuStreamDestroy_v2](stream: u64) { streams::destroy(stream) }
    fn [cuStreamGetCtx](stream: u64, out: Option<&mut u64>) { streams::context(stream, out) }
    fn [cuStreamQuery](stream: u64) { streams::query(stream) }
    fn [cuStreamSynchronize](stream: u64) { streams::synchronize(stream) }
    fn [cuStreamWriteValue32, cuStreamWriteValue32_v2](stream: u64, address: u64, value: u32, flags: u32) {
        streams::write_value(stream, address, value, flags)
    }
    fn [cuStreamWaitValue32, cuStreamWaitValue32_v2](stream: u64, address: u64, value: u32, flags: u32) {
        streams::wait_value(stream, address, value, flags)
    }
}
