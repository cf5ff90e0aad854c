//! Stream capture.

use std::ffi::c_int;

use fake_device::{api, capture};

api! {
    fn [cuStreamBeginCapture_v2](stream: u64, mode: u32) { capture::begin(stream, mode) }
    fn [cuStreamEndCapture](stream: u64, graph: Option<&mut u64>) { capture::end_capture(stream, graph) }
    fn [cuStreamIsCapturing](stream: u64, status: Option<&mut c_int>) {
        capture::is_capturing(stream, status)
    }
    fn [cuStreamGetCaptureInfo](stream: u64, status: Option<&mut c_int>, id: Option<&mut u64>) {
        capture::info(stream, status, id)
    }
}
