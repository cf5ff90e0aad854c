//! Streams, events, graphs, memory of the host, modules and launches.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;
use std::mem::MaybeUninit;

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
    /// Whether all work on the stream has completed. Fails if that work failed. Not blocking.
    ///
    /// # Safety
    /// `stream` is live, or a caller's live stream of this device.
    unsafe fn stream_idle(&self, stream: RawStream) -> CallResult<bool>;
    /// Makes later work on `stream` wait for `event`. Capturable.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> CallResult<()>;
    /// Whether the stream is being captured.
    ///
    /// # Safety
    /// `stream` is live.
    unsafe fn stream_capturing(&self, stream: RawStream) -> CallResult<bool>;

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
    /// Whether the recorded point has been reached; true if nothing was recorded. Not blocking.
    ///
    /// # Safety
    /// `event` is live.
    unsafe fn event_done(&self, event: RawEvent) -> CallResult<bool>;
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
    /// Sets each of `bytes` bytes of device memory to `value`, on the stream. Capturable.
    ///
    /// # Safety
    /// The range is live device memory until the stream has passed this point.
    unsafe fn memory_set(
        &self,
        destination: DeviceAddress,
        value: u8,
        bytes: u64,
        stream: RawStream,
    ) -> CallResult<()>;

    /// Loads device code: the contents of a file in any form that the driver takes. Loads its functions at once.
    /// May block.
    ///
    /// # Safety
    /// `image` is code that is safe to run.
    unsafe fn module_load(&self, image: &[u8]) -> CallResult<RawModule>;
    /// Unloads it.
    ///
    /// # Safety
    /// `module` is live, none of its kernels runs, and it is not used again.
    unsafe fn module_unload(&self, module: RawModule) -> CallResult<()>;
    /// Finds a kernel by its name.
    ///
    /// # Safety
    /// `module` is live.
    unsafe fn module_function(&self, module: RawModule, name: &str) -> CallResult<RawFunction>;
    /// Finds a kernel among the backend's own, by its name in `device/`.
    fn builtin_function(&self, name: &str) -> CallResult<RawFunction>;
    /// Launches a kernel. `arguments` are the bytes of a `repr(C)` struct of its parameters, in order, padding
    /// included: [`super::argument_bytes`] gives them. They are copied before the call returns. Capturable.
    ///
    /// # Safety
    /// - `function` is live.
    /// - `arguments` has the size and layout of the kernel's parameters; every byte but padding is initialised and
    ///   is a value that the kernel takes.
    /// - The memory that the kernel touches is live until the stream has passed this point.
    unsafe fn launch(
        &self,
        function: RawFunction,
        geometry: &Geometry,
        arguments: &[MaybeUninit<u8>],
        stream: RawStream,
    ) -> CallResult<()>;
}
