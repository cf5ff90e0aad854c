//! The host backend: the machine, opened as one device.

use super::progress::{Policy, Sleeper};
use super::segments::Segments;
use super::stream::Stream;
use super::{handle, machine};
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The machine, opened for one rank.
pub struct HostBackend {
    pub(crate) policy: Policy,
    /// Origin of the times that events record.
    pub(crate) origin: Instant,
    /// The stream that [`RawStream::NULL`] names.
    null_stream: Arc<Stream>,
    pub(crate) segments: Segments,
    /// Whether collectives may emulate multicast.
    pub(crate) multicast: MulticastSupportCode,
}

impl HostBackend {
    /// Returns the number of devices: the machine is the only one.
    pub fn device_count() -> u32 {
        1
    }

    /// Describes the machine without opening it.
    ///
    /// # Errors
    /// `NO_DEVICE` for any ordinal except 0.
    pub fn describe_device(ordinal: u32) -> CallResult<DeviceDescription> {
        only_device(ordinal, "describe_device")?;
        Ok(machine::describe())
    }

    /// Opens the machine for one rank. Waits do not spin if there are more ranks than processors.
    ///
    /// # Errors
    /// `NO_DEVICE` for any ordinal except 0.
    pub fn open(options: &OpenOptions) -> CallResult<Self> {
        only_device(options.ordinal, "open")?;
        let policy = Policy::new(options.local_world, machine::processors());
        Ok(Self {
            policy,
            origin: Instant::now(),
            null_stream: Stream::new(policy),
            segments: Segments::default(),
            multicast: multicast_support(),
        })
    }

    /// Blocks until all work on the stream is done, at most for `longest`, and returns whether it is done.
    ///
    /// For a caller with nothing else to do: polling [`crate::backend::Device::stream_idle`] would take the processor
    /// from the rank that the caller waits for.
    ///
    /// # Errors
    /// `UNSUPPORTED` while the stream is being captured.
    ///
    /// # Safety
    /// `stream` is live.
    pub unsafe fn stream_block(&self, stream: RawStream, longest: Duration) -> CallResult<bool> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "stream_block")? };
        stream.refuse_capture("stream_block", "its work is not run; end the capture first")?;
        Ok(stream.block(longest))
    }

    /// Executes what can be executed, or else sleeps until the word changes that the stream waits for, at most for `longest`:
    /// by `sleeper`, if that watches the word. Returns whether all work is done. Unlike [`HostBackend::stream_block`], it
    /// returns after each step.
    ///
    /// # Errors
    /// `UNSUPPORTED` while the stream is being captured.
    ///
    /// # Safety
    /// `stream` is live.
    pub unsafe fn stream_pause(
        &self,
        stream: RawStream,
        longest: Duration,
        sleeper: Option<&dyn Sleeper>,
    ) -> CallResult<bool> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "stream_pause")? };
        stream.refuse_capture("stream_pause", "its work is not run; end the capture first")?;
        Ok(stream.pause(longest, sleeper))
    }

    /// Returns the stream of a handle.
    ///
    /// # Safety
    /// `stream` is live while the result is.
    pub(crate) unsafe fn stream(
        &self,
        stream: RawStream,
        call: &str,
    ) -> CallResult<ManuallyDrop<Arc<Stream>>> {
        let handle = if stream == RawStream::NULL {
            Arc::as_ptr(&self.null_stream).expose_provenance() as u64
        } else {
            stream.0
        };
        // SAFETY: the null stream lives as long as `self`; this function requires any other stream to be live.
        unsafe { handle::borrow_shared(handle, call) }
    }
}

impl Drop for HostBackend {
    fn drop(&mut self) {
        self.null_stream.close();
    }
}

/// Reads from the environment whether multicast collectives are to be emulated.
fn multicast_support() -> MulticastSupportCode {
    match std::env::var("SYMMEM_MULTICAST") {
        Ok(text) if text.trim().eq_ignore_ascii_case("emulate") => MulticastSupportCode::EMULATED,
        _ => MulticastSupportCode::NONE,
    }
}

fn only_device(ordinal: u32, call: &str) -> CallResult<()> {
    if ordinal == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Status::NO_DEVICE,
        call,
        format!("device {ordinal} does not exist; the host backend has only device 0"),
    ))
}
