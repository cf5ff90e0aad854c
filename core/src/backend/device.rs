//! Streams, events, graphs, memory of the host, modules and launches.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// An open device: what the other traits launch through.
#[enum_dispatch]
pub trait Device {
    /// What the device can do. Constant for the life of the instance.
    fn capabilities(&self) -> CallResult<Capabilities>;
    /// Which device this is.
    fn description(&self) -> CallResult<DeviceDescription>;
    /// Free and total memory now.
    fn memory_information(&self) -> CallResult<MemoryInformation>;

    /// A new stream, not ordered with any other.
    fn stream_create(&self) -> CallResult<RawStream>;
    /// Gives a stream up. Work on it still completes.
    ///
    /// # Safety
    /// `stream` came from [`Device::stream_create`] and is not used again.
    unsafe fn stream_destroy(&self, stream: RawStream) -> CallResult<()>;
    /// 1 if all work on the stream has completed, else 0. Fails if that work failed. Not blocking.
    ///
    /// # Safety
    /// `stream` is live, or a caller's live stream of this device.
    unsafe fn stream_idle(&self, stream: RawStream) -> CallResult<u32>;
    /// Makes later work on `stream` wait for `event`. Capturable.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> CallResult<()>;
    /// 1 if the stream is being captured, else 0.
    ///
    /// # Safety
    /// `stream` is live.
    unsafe fn stream_capturing(&self, stream: RawStream) -> CallResult<u32>;

    /// A new event that records time.
    fn event_create(&self) -> CallResult<RawEvent>;
    /// Gives an event up.
    ///
    /// # Safety
    /// `event` is live and not used again.
    unsafe fn event_destroy(&self, event: RawEvent) -> CallResult<()>;
    /// Marks the point that the stream's work has reached.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> CallResult<()>;
    /// 1 if the recorded point has been reached (or nothing was recorded), else 0. Not blocking.
    ///
    /// # Safety
    /// `event` is live.
    unsafe fn event_done(&self, event: RawEvent) -> CallResult<u32>;
    /// Nanoseconds on the device between two reached points.
    ///
    /// # Safety
    /// Both are live and recorded.
    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> CallResult<u64>;

    /// From here on work on `stream` is recorded, not run.
    ///
    /// # Safety
    /// `stream` is live and is not the null stream.
    unsafe fn capture_begin(&self, stream: RawStream) -> CallResult<()>;
    /// Ends the recording.
    ///
    /// # Safety
    /// `stream` is live.
    unsafe fn capture_end(&self, stream: RawStream) -> CallResult<RawGraph>;
    /// Makes a recording launchable and gives the recording up.
    ///
    /// # Safety
    /// `graph` is live and not used again.
    unsafe fn graph_instantiate(&self, graph: RawGraph) -> CallResult<RawGraphExec>;
    /// Runs the recorded work, in order with the stream.
    ///
    /// # Safety
    /// Both are live, and all memory the recording names is.
    unsafe fn graph_launch(&self, graph: RawGraphExec, stream: RawStream) -> CallResult<()>;
    /// Gives an instantiated graph up.
    ///
    /// # Safety
    /// `graph` is live, not running, and not used again.
    unsafe fn graph_destroy(&self, graph: RawGraphExec) -> CallResult<()>;

    /// Host memory that the device can load and store, zeroed.
    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory>;
    /// Frees it.
    ///
    /// # Safety
    /// It came from [`Device::host_allocate`] and neither host nor device uses it again.
    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()>;
    /// Lets the device load and store `bytes` of host memory at `pointer`, both page-aligned.
    ///
    /// # Safety
    /// The memory is mapped until [`Device::host_unregister`].
    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory>;
    /// Ends it.
    ///
    /// # Safety
    /// `pointer` is registered and the device does not use it again.
    unsafe fn host_unregister(&self, pointer: u64) -> CallResult<()>;
    /// Fills device memory with a byte, on the stream. Capturable.
    ///
    /// # Safety
    /// The range is live device memory until the stream has passed this point.
    unsafe fn memory_set(
        &self,
        destination: DeviceAddress,
        value: u32,
        bytes: u64,
        stream: RawStream,
    ) -> CallResult<()>;

    /// Loads device code, in any form that the driver takes. Functions are loaded at once.
    ///
    /// # Safety
    /// `data` points to `bytes` readable bytes of code that is safe to run.
    unsafe fn module_load(&self, data: *const u8, bytes: u64) -> CallResult<RawModule>;
    /// Unloads it.
    ///
    /// # Safety
    /// `module` is live, none of its kernels runs, and it is not used again.
    unsafe fn module_unload(&self, module: RawModule) -> CallResult<()>;
    /// Finds a kernel by its name (`length` bytes of UTF-8).
    ///
    /// # Safety
    /// `module` is live and `name` points to `length` readable bytes.
    unsafe fn module_function(
        &self,
        module: RawModule,
        name: *const u8,
        length: u64,
    ) -> CallResult<RawFunction>;
    /// Finds a kernel among the backend's own, by its name in `device/`.
    ///
    /// # Safety
    /// `name` points to `length` readable bytes.
    unsafe fn builtin_function(&self, name: *const u8, length: u64) -> CallResult<RawFunction>;
    /// Launches a kernel whose parameters, laid out as the kernel's ABI has it, are the `bytes` at
    /// `arguments`; they are copied before the call returns. Capturable.
    ///
    /// # Safety
    /// The function is live, the arguments are what it takes, and the memory it touches is live
    /// until the stream has passed this point.
    unsafe fn launch(
        &self,
        function: RawFunction,
        geometry: &Geometry,
        arguments: *const u8,
        bytes: u64,
        stream: RawStream,
    ) -> CallResult<()>;
}
