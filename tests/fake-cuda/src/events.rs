//! Events: points in the work of streams.

use fake_device::{api, events};

api! {
    fn [cuEventCreate](out: Option<&mut u64>, flags: u32) { events::create(out, flags) }
    fn [cuEventDestroy_v2](event: u64) { events::destroy(event) }
    fn [cuEventRecord](event: u64, stream: u64) { events::record(event, stream) }
    fn [cuEventQuery](event: u64) { events::query(event) }
    fn [cuEventSynchronize](event: u64) { events::synchronize(event) }
    fn [cuEventElapsedTime, cuEventElapsedTime_v2](out: Option<&mut f32>, start: u64, end: u64) {
        events::elapsed(out, start, end)
    }
    fn [cuStreamWaitEvent](stream: u64, event: u64, flags: u32) { events::wait(stream, event, flags) }
}
