//! Streams, events and capture.

use std::ffi::c_int;

use fake_device::error::{Code, Result};
use fake_device::{api, capture, events, streams};

/// `hipEventBlockingSync`, `DisableTiming` and `Interprocess`, which the fakes share. The other flags set how far a
/// record releases memory; every record here releases it for the whole system.
const EVENT_FLAGS: u32 = 7;
const EVENT_RELEASE: u32 = 0xe000_0000;

/// Accepts only a mask of all bits. Waiting for some bits is a different operation, which the fakes do not have.
fn whole(mask: u32) -> Result {
    if mask == u32::MAX {
        Ok(())
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}

api! {
    fn [hipStreamCreate](out: Option<&mut u64>) { streams::create(out, 0) }
    fn [hipStreamCreateWithFlags](out: Option<&mut u64>, flags: u32) { streams::create(out, flags) }
    fn [hipStreamCreateWithPriority](out: Option<&mut u64>, flags: u32, _priority: c_int) {
        streams::create(out, flags)
    }
    fn [hipStreamDestroy](stream: u64) { streams::destroy(stream) }
    fn [hipStreamQuery](stream: u64) { streams::query(stream) }
    fn [hipStreamSynchronize](stream: u64) { streams::synchronize(stream) }
    fn [hipStreamWaitEvent](stream: u64, event: u64, flags: u32) { events::wait(stream, event, flags) }
    fn [hipStreamWriteValue32](stream: u64, address: u64, value: u32, flags: u32) {
        streams::write_value(stream, address, value, flags)
    }
    fn [hipStreamWaitValue32](stream: u64, address: u64, value: u32, flags: u32, mask: u32) {
        whole(mask)?;
        streams::wait_value(stream, address, value, flags)
    }

    fn [hipStreamBeginCapture](stream: u64, mode: u32) { capture::begin(stream, mode) }
    fn [hipStreamEndCapture](stream: u64, graph: Option<&mut u64>) { capture::end_capture(stream, graph) }
    fn [hipStreamIsCapturing](stream: u64, status: Option<&mut c_int>) {
        capture::is_capturing(stream, status)
    }
    fn [hipStreamGetCaptureInfo](stream: u64, status: Option<&mut c_int>, id: Option<&mut u64>) {
        capture::info(stream, status, id)
    }

    fn [hipEventCreate](out: Option<&mut u64>) { events::create(out, 0) }
    fn [hipEventCreateWithFlags](out: Option<&mut u64>, flags: u32) {
        if flags & !(EVENT_FLAGS | EVENT_RELEASE) != 0 {
            return Err(Code::INVALID_VALUE);
        }
        events::create(out, flags & EVENT_FLAGS)
    }
    fn [hipEventDestroy](event: u64) { events::destroy(event) }
    fn [hipEventRecord](event: u64, stream: u64) { events::record(event, stream) }
    fn [hipEventRecordWithFlags](event: u64, stream: u64, flags: u32) {
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        events::record(event, stream)
    }
    fn [hipEventQuery](event: u64) { events::query(event) }
    fn [hipEventSynchronize](event: u64) { events::synchronize(event) }
    fn [hipEventElapsedTime](out: Option<&mut f32>, start: u64, end: u64) { events::elapsed(out, start, end) }
}
