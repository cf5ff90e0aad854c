//! Streams, events, graphs, host memory, modules and launches.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;
use std::mem::MaybeUninit;

/// An open device, through which the other traits enqueue.
#[enum_dispatch]
pub trait Device {
    /// Returns what the device can do. Constant for the life of the instance.
    fn capabilities(&self) -> CallResult<Capabilities>;
    /// Returns the device's identity.
    fn description(&self) -> CallResult<DeviceDescription>;
    /// Returns free and total memory at this moment.
    fn memory_information(&self) -> CallResult<MemoryInformation>;

    /// Creates a stream that is not ordered with any other stream.
    fn stream_create(&self) -> CallResult<RawStream>;
    /// Creates a stream as [`Device::stream_create`] does, of the highest priority. Its copies run while any number of
    /// other streams wait: devices have few queues, which streams of one priority share.
    fn stream_create_urgent(&self) -> CallResult<RawStream>;
    /// Destroys a stream. Work already on it still completes.
    ///
    /// # Safety
    /// `stream` came from [`Device::stream_create`] and is not used again.
    unsafe fn stream_destroy(&self, stream: RawStream) -> CallResult<()>;
    /// Whether all work on the stream has completed. Fails if that work failed. Does not block.
    ///
    /// # Safety
    /// `stream` is live: created here, or a stream of this device that the caller owns.
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

    /// Creates an event that records time.
    fn event_create(&self) -> CallResult<RawEvent>;
    /// Destroys an event.
    ///
    /// # Safety
    /// `event` is live and not used again.
    unsafe fn event_destroy(&self, event: RawEvent) -> CallResult<()>;
    /// Records the event after the work that is now on the stream.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> CallResult<()>;
    /// Whether the recorded point has been reached; true if nothing was recorded. Does not block.
    ///
    /// # Safety
    /// `event` is live.
    unsafe fn event_done(&self, event: RawEvent) -> CallResult<bool>;
    /// Returns the device time between two reached events, in nanoseconds.
    ///
    /// # Safety
    /// Both are live and recorded.
    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> CallResult<u64>;

    /// Begins to capture: work on `stream` is from now on recorded and not run.
    ///
    /// # Safety
    /// `stream` is live and is not the null stream.
    unsafe fn capture_begin(&self, stream: RawStream) -> CallResult<()>;
    /// Ends the capture and returns the recorded work.
    ///
    /// # Safety
    /// `stream` is live.
    unsafe fn capture_end(&self, stream: RawStream) -> CallResult<RawGraph>;
    /// Instantiates captured work and consumes it.
    ///
    /// # Safety
    /// `graph` is live and not used again.
    unsafe fn graph_instantiate(&self, graph: RawGraph) -> CallResult<RawGraphExec>;
    /// Enqueues the captured work on the stream.
    ///
    /// # Safety
    /// Both are live, as is all memory that the captured work uses.
    unsafe fn graph_launch(&self, graph: RawGraphExec, stream: RawStream) -> CallResult<()>;
    /// Destroys an instantiated graph.
    ///
    /// # Safety
    /// `graph` is live, not running, and not used again.
    unsafe fn graph_destroy(&self, graph: RawGraphExec) -> CallResult<()>;

    /// Allocates zeroed host memory that the device can load and store.
    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory>;
    /// Frees memory from [`Device::host_allocate`].
    ///
    /// # Safety
    /// `memory` came from [`Device::host_allocate`], and neither host nor device uses it again.
    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()>;
    /// Lets the device load and store `bytes` of host memory at `pointer`, both multiples of the page size.
    ///
    /// # Safety
    /// The memory is mapped until [`Device::host_unregister`].
    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory>;
    /// Ends the device's access to registered host memory.
    ///
    /// # Safety
    /// `pointer` is registered and the device does not use it again.
    unsafe fn host_unregister(&self, pointer: u64) -> CallResult<()>;
    /// Enqueues a fill of `bytes` bytes of device memory with `value`. Capturable.
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

    /// Checks that kernels of this device may use the memory at `address`: memory of this device, or managed memory. Looks
    /// at the first and at the last of `bytes` bytes; what lies between may be anything.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with what is there instead. A backend that cannot tell returns none.
    fn check_memory(&self, address: DeviceAddress, bytes: u64) -> CallResult<()>;

    /// Loads device code and all its functions at once. `image` is the contents of a file in any format that the
    /// driver accepts. May block.
    ///
    /// # Safety
    /// The device code in `image` is safe to run.
    unsafe fn module_load(&self, image: &[u8]) -> CallResult<RawModule>;
    /// Unloads a module.
    ///
    /// # Safety
    /// `module` is live, none of its kernels runs, and it is not used again.
    unsafe fn module_unload(&self, module: RawModule) -> CallResult<()>;
    /// Finds a kernel by its name.
    ///
    /// # Safety
    /// `module` is live.
    unsafe fn module_function(&self, module: RawModule, name: &str) -> CallResult<RawFunction>;
    /// Returns the bytes of a kernel's parameters, each at its alignment and without padding behind the last, or `None`
    /// if the driver cannot tell.
    ///
    /// # Safety
    /// `function` is live.
    unsafe fn function_parameter_bytes(&self, function: RawFunction) -> CallResult<Option<u64>>;
    /// Finds one of the backend's built-in kernels by its name in `device/`.
    fn builtin_function(&self, name: &str) -> CallResult<RawFunction>;
    /// Enqueues a kernel. `arguments` are the bytes of a `repr(C)` struct of the kernel's parameters in order,
    /// padding included; [`super::argument_bytes`] returns them. The call copies them before it returns. Capturable.
    ///
    /// # Safety
    /// - `function` is live.
    /// - `arguments` has the size and layout of the kernel's parameters. Every byte except padding is initialized and
    ///   has a value that the kernel accepts.
    /// - The memory that the kernel accesses is live until the stream has passed this point.
    unsafe fn launch(
        &self,
        function: RawFunction,
        geometry: &Geometry,
        arguments: &[MaybeUninit<u8>],
        stream: RawStream,
    ) -> CallResult<()>;
}
