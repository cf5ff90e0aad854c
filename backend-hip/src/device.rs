//! `Device` for HIP: streams, events, graphs, host memory, modules and launches.

use crate::instance::HipBackend;
use crate::memory;
use crate::modules;
use crate::runtime::constants::*;
use crate::runtime::hip;
use crate::runtime::table::{Event, Function, Graph, GraphExec, Module, Stream};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null_mut, with_exposed_provenance_mut, without_provenance_mut};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Failure};
use symmem_gpu::memory::check_place;
use symmem_gpu::{Current, Grid, MOST_URGENT, refused_launch};
use symmem_kernels_hip::Launch;

/// Returns the `hipStream_t` behind a handle.
pub fn stream(raw: RawStream) -> Stream {
    with_exposed_provenance_mut(raw.0 as usize)
}

fn event(raw: RawEvent) -> Event {
    with_exposed_provenance_mut(raw.0 as usize)
}

fn graph(raw: RawGraph) -> Graph {
    with_exposed_provenance_mut(raw.0 as usize)
}

fn executable(raw: RawGraphExec) -> GraphExec {
    with_exposed_provenance_mut(raw.0 as usize)
}

fn module(raw: RawModule) -> Module {
    with_exposed_provenance_mut(raw.0 as usize)
}

fn handle<T>(pointer: *mut T) -> u64 {
    pointer.expose_provenance() as u64
}

impl Device for HipBackend {
    fn capabilities(&self) -> CallResult<Capabilities> {
        Ok(self.state.capabilities)
    }

    fn description(&self) -> CallResult<DeviceDescription> {
        Ok(self.state.description)
    }

    fn memory_information(&self) -> CallResult<MemoryInformation> {
        let (mut free, mut total) = (0, 0);
        let (free_place, total_place) = (&raw mut free, &raw mut total);
        // SAFETY: both out-pointers are writable.
        self.here(|| unsafe { hip!(self.runtime(), hipMemGetInfo(free_place, total_place)) })?;
        let (free, total) = (free as u64, total as u64);
        Ok(MemoryInformation { free, total })
    }

    fn stream_create(&self) -> CallResult<RawStream> {
        self.make(|place| {
            // SAFETY: the out-pointer is writable.
            unsafe {
                hip!(
                    self.runtime(),
                    hipStreamCreateWithFlags(place, STREAM_NON_BLOCKING)
                )
            }
        })
        .map(RawStream)
    }

    fn stream_create_urgent(&self) -> CallResult<RawStream> {
        self.make(|place| {
            // SAFETY: the out-pointer is writable.
            unsafe {
                hip!(
                    self.runtime(),
                    hipStreamCreateWithPriority(place, STREAM_NON_BLOCKING, MOST_URGENT)
                )
            }
        })
        .map(RawStream)
    }

    unsafe fn stream_destroy(&self, raw: RawStream) -> CallResult<()> {
        // SAFETY: the caller passes a live stream and gives it up. The runtime still completes its work.
        self.give_back(|| unsafe { hip!(self.runtime(), hipStreamDestroy(stream(raw))) })
    }

    unsafe fn stream_idle(&self, raw: RawStream) -> CallResult<bool> {
        let _entered = self.enter()?;
        let runtime = self.runtime();
        // SAFETY: the caller passes a live stream.
        runtime.check_ready("hipStreamQuery", unsafe {
            (runtime.table.hipStreamQuery)(stream(raw))
        })
    }

    unsafe fn stream_wait_event(&self, raw: RawStream, awaited: RawEvent) -> CallResult<()> {
        let (waits, awaited) = (stream(raw), event(awaited));
        // SAFETY: the caller passes a live stream and a live event.
        self.here(|| unsafe { hip!(self.runtime(), hipStreamWaitEvent(waits, awaited, 0)) })
    }

    unsafe fn stream_capturing(&self, raw: RawStream) -> CallResult<bool> {
        let mut status = 0;
        let (asked, place) = (stream(raw), &raw mut status);
        // SAFETY: the caller passes a live stream, and the out-pointer is writable.
        self.here(|| unsafe { hip!(self.runtime(), hipStreamIsCapturing(asked, place)) })?;
        // 1 (active) and 2 (invalidated) both exclude eager work.
        Ok(status != 0)
    }

    fn event_create(&self) -> CallResult<RawEvent> {
        self.make(|place| {
            // SAFETY: the out-pointer is writable.
            unsafe {
                hip!(
                    self.runtime(),
                    hipEventCreateWithFlags(place, EVENT_DEFAULT)
                )
            }
        })
        .map(RawEvent)
    }

    unsafe fn event_destroy(&self, raw: RawEvent) -> CallResult<()> {
        // SAFETY: the caller passes a live event and gives it up.
        self.give_back(|| unsafe { hip!(self.runtime(), hipEventDestroy(event(raw))) })
    }

    unsafe fn event_record(&self, raw: RawEvent, on: RawStream) -> CallResult<()> {
        let (raw, on) = (event(raw), stream(on));
        // SAFETY: the caller passes a live event and a live stream.
        self.here(|| unsafe { hip!(self.runtime(), hipEventRecord(raw, on)) })
    }

    unsafe fn event_done(&self, raw: RawEvent) -> CallResult<bool> {
        let _entered = self.enter()?;
        let runtime = self.runtime();
        // SAFETY: the caller passes a live event.
        runtime.check_ready("hipEventQuery", unsafe {
            (runtime.table.hipEventQuery)(event(raw))
        })
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> CallResult<u64> {
        let mut milliseconds = 0.0;
        let (place, start, end) = (&raw mut milliseconds, event(start), event(end));
        // SAFETY: the caller passes live events, and the out-pointer is writable.
        self.here(|| unsafe { hip!(self.runtime(), hipEventElapsedTime(place, start, end)) })?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    unsafe fn capture_begin(&self, raw: RawStream) -> CallResult<()> {
        let captured = stream(raw);
        // Stricter modes than relaxed fail calls of other threads that poll events or allocate; the watcher has
        // to poll during a capture.
        // SAFETY: the caller passes a live stream.
        self.here(|| unsafe {
            hip!(
                self.runtime(),
                hipStreamBeginCapture(captured, CAPTURE_MODE_RELAXED)
            )
        })
    }

    unsafe fn capture_end(&self, raw: RawStream) -> CallResult<RawGraph> {
        self.make(|place| {
            // SAFETY: the caller passes a live stream, and the out-pointer is writable.
            unsafe { hip!(self.runtime(), hipStreamEndCapture(stream(raw), place)) }
        })
        .map(RawGraph)
    }

    unsafe fn graph_instantiate(&self, raw: RawGraph) -> CallResult<RawGraphExec> {
        let recording = graph(raw);
        let made = self.make(|place| {
            // SAFETY: the caller passes a live graph, and the out-pointer is writable.
            unsafe {
                hip!(
                    self.runtime(),
                    hipGraphInstantiateWithFlags(place, recording, 0)
                )
            }
        });
        // SAFETY: the caller gives the recorded graph up to this call, which destroys it even if instantiating failed.
        let given_up =
            self.give_back(|| unsafe { hip!(self.runtime(), hipGraphDestroy(recording)) });
        let made = RawGraphExec(made?);
        if let Err(failure) = given_up {
            // SAFETY: the executable was created above and nobody else has it. Only the first failure is reported.
            let _ = unsafe { self.graph_destroy(made) };
            return Err(failure);
        }
        Ok(made)
    }

    unsafe fn graph_launch(&self, raw: RawGraphExec, on: RawStream) -> CallResult<()> {
        let (launched, on) = (executable(raw), stream(on));
        // SAFETY: the caller passes a live graph and a live stream, and keeps the graph's memory live.
        self.here(|| unsafe { hip!(self.runtime(), hipGraphLaunch(launched, on)) })
    }

    unsafe fn graph_destroy(&self, raw: RawGraphExec) -> CallResult<()> {
        // SAFETY: the caller passes a live executable graph and gives it up.
        self.give_back(|| unsafe { hip!(self.runtime(), hipGraphExecDestroy(executable(raw))) })
    }

    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory> {
        let mut pointer: *mut c_void = null_mut();
        let (place, length) = (&raw mut pointer, bytes as usize);
        let flags = HOST_PORTABLE_MAPPED_COHERENT;
        // SAFETY: the out-pointer is writable.
        self.here(|| unsafe { hip!(self.runtime(), hipHostMalloc(place, length, flags)) })?;
        // SAFETY: the runtime allocated `bytes` bytes here, which nobody else has yet.
        unsafe { pointer.cast::<u8>().write_bytes(0, length) };
        self.host_memory(pointer, bytes).inspect_err(|_| {
            // SAFETY: this memory was allocated above, and nobody else has it.
            unsafe { (self.runtime().table.hipHostFree)(pointer) };
        })
    }

    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut(memory.host as usize);
        // SAFETY: the caller passes live host memory and gives it up.
        self.give_back(|| unsafe { hip!(self.runtime(), hipHostFree(pointer)) })
    }

    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory> {
        let pointer = with_exposed_provenance_mut::<c_void>(pointer as usize);
        let (length, flags) = (bytes as usize, REGISTER_PORTABLE_AND_MAPPED);
        // SAFETY: the caller keeps the memory mapped until it is unregistered.
        self.here(|| unsafe { hip!(self.runtime(), hipHostRegister(pointer, length, flags)) })?;
        self.host_memory(pointer, bytes).inspect_err(|_| {
            // SAFETY: this memory was registered above, and nothing uses it yet.
            unsafe { (self.runtime().table.hipHostUnregister)(pointer) };
        })
    }

    unsafe fn host_unregister(&self, pointer: u64) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut(pointer as usize);
        // SAFETY: the caller passes registered memory, which the device no longer uses.
        self.give_back(|| unsafe { hip!(self.runtime(), hipHostUnregister(pointer)) })
    }

    unsafe fn memory_set(
        &self,
        to: DeviceAddress,
        value: u8,
        bytes: u64,
        on: RawStream,
    ) -> CallResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (bytes, on) = (bytes as usize, stream(on));
        // SAFETY: the caller keeps this range live until the stream has passed this point.
        self.here(|| unsafe { hip!(self.runtime(), hipMemsetD8Async(to.0, value, bytes, on)) })
    }

    unsafe fn module_load(&self, image: &[u8]) -> CallResult<RawModule> {
        let _entered = self.enter()?;
        // SAFETY: the device is current, and the caller says that the code is safe.
        let loaded = unsafe { self.images.load(self.runtime(), image) }?;
        Ok(RawModule(handle(loaded)))
    }

    unsafe fn module_unload(&self, raw: RawModule) -> CallResult<()> {
        let loaded = module(raw);
        self.images.unload(loaded, || {
            // SAFETY: the caller gives a live module up while none of its kernels runs.
            self.give_back(|| unsafe { hip!(self.runtime(), hipModuleUnload(loaded)) })
        })
    }

    unsafe fn module_function(&self, raw: RawModule, name: &str) -> CallResult<RawFunction> {
        let _entered = self.enter()?;
        let name = name.as_bytes();
        // SAFETY: the device is current, and the caller passes a live module.
        let function = unsafe { modules::function(self.runtime(), module(raw), name) }?;
        Ok(RawFunction(handle(function)))
    }

    fn check_memory(&self, address: DeviceAddress, bytes: u64) -> CallResult<()> {
        let place = |at| memory::place(self.runtime(), at);
        check_place(self.state.description.ordinal, address, bytes, place)
    }

    /// HIP has no such call for functions of modules: `hipKernelGetParamInfo` takes kernels of `hipLibrary_t`.
    unsafe fn function_parameter_bytes(&self, _raw: RawFunction) -> CallResult<Option<u64>> {
        Ok(None)
    }

    fn builtin_function(&self, name: &str) -> CallResult<RawFunction> {
        let kernel = self.state.kernels.by_name(name.as_bytes())?;
        Ok(RawFunction(handle(kernel.function())))
    }

    unsafe fn launch(
        &self,
        raw: RawFunction,
        geometry: &Geometry,
        arguments: &[MaybeUninit<u8>],
        on: RawStream,
    ) -> CallResult<()> {
        let function: Function = with_exposed_provenance_mut(raw.0 as usize);
        if !self.modules.have(function) {
            // SAFETY: the caller upholds this method's contract, which is also the callee's.
            return unsafe { self.launch_packed(function, geometry, arguments, on) }
                .map_err(|failure| refused_launch(failure, geometry, arguments.len()));
        }
        let ([blocks, 1, 1], [threads, 1, 1]) = (geometry.blocks, geometry.threads) else {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "launch",
                "symmem's built-in kernels need one-dimensional grids and blocks",
            ));
        };
        let grid = Grid {
            blocks,
            threads,
            shared_memory: geometry.shared_memory,
        };
        // SAFETY: as above; a built-in kernel takes one struct, which the arguments are.
        unsafe { self.launch_own(function, grid, arguments.as_ptr().cast(), on) }
    }
}

impl HipBackend {
    pub(crate) fn runtime(&self) -> &'static crate::runtime::Runtime {
        self.device.runtime
    }

    /// Runs a call with the device current.
    #[inline]
    fn here(&self, call: impl FnOnce() -> CallResult<()>) -> CallResult<()> {
        let _entered = self.enter()?;
        call()
    }

    /// Runs a call that writes a handle, with the device current, and returns the handle.
    fn make(&self, call: impl FnOnce(*mut *mut c_void) -> CallResult<()>) -> CallResult<u64> {
        let mut made = null_mut();
        let place = &raw mut made;
        self.here(|| call(place))?;
        Ok(handle(made))
    }

    /// Returns the address on this device of allocated or registered host memory.
    fn host_memory(&self, pointer: *mut c_void, bytes: u64) -> CallResult<HostMemory> {
        let mut address = 0;
        let place = &raw mut address;
        self.here(|| {
            // SAFETY: the out-pointer is writable, and the runtime knows this memory.
            unsafe { hip!(self.runtime(), hipHostGetDevicePointer(place, pointer, 0)) }
        })?;
        Ok(HostMemory {
            host: handle(pointer),
            device: DeviceAddress(address),
            bytes,
        })
    }

    /// Launches a kernel of the program. Its parameters are one buffer, which the runtime copies before this returns.
    ///
    /// # Safety
    /// As [`Device::launch`].
    unsafe fn launch_packed(
        &self,
        function: Function,
        geometry: &Geometry,
        arguments: &[MaybeUninit<u8>],
        on: RawStream,
    ) -> CallResult<()> {
        let mut length = arguments.len();
        let mut extra: [*mut c_void; 5] = [
            without_provenance_mut(LAUNCH_PARAMETER_BUFFER_POINTER),
            arguments.as_ptr().cast_mut().cast(),
            without_provenance_mut(LAUNCH_PARAMETER_BUFFER_SIZE),
            (&raw mut length).cast(),
            without_provenance_mut(LAUNCH_PARAMETER_END),
        ];
        let ([x, y, z], [thread_x, thread_y, thread_z]) = (geometry.blocks, geometry.threads);
        let (shared, on, extra) = (geometry.shared_memory, stream(on), extra.as_mut_ptr());
        // SAFETY: `extra` is a list as HIP documents it, and the runtime reads the buffer before it returns.
        // The caller upholds the contract of `Device::launch`.
        self.here(|| unsafe {
            hip!(
                self.runtime(),
                hipModuleLaunchKernel(
                    function,
                    x,
                    y,
                    z,
                    thread_x,
                    thread_y,
                    thread_z,
                    shared,
                    on,
                    null_mut(),
                    extra
                )
            )
        })
        .map_err(|failure| self.launch_failure(failure, function, geometry.threads))
    }

    /// Launches a built-in kernel, which takes a [`Launch`] and then one struct by value.
    ///
    /// # Safety
    /// As [`Device::launch`]; `argument` points to the struct that the kernel takes.
    #[inline]
    pub(crate) unsafe fn launch_own(
        &self,
        function: Function,
        grid: Grid,
        argument: *const c_void,
        on: RawStream,
    ) -> CallResult<()> {
        let (blocks, threads) = (grid.blocks, grid.threads);
        let mut launch = Launch {
            blocks,
            threads,
            tick_ns: self.tick_ns,
            reserved: 0,
        };
        let mut parameters = [(&raw mut launch).cast(), argument.cast_mut()];
        let (shared, on, list) = (grid.shared_memory, stream(on), parameters.as_mut_ptr());
        // SAFETY: the runtime knows the parameters' sizes from the code object, and reads both before it
        // returns. The caller upholds the contract of `Device::launch`.
        self.here(|| unsafe {
            hip!(
                self.runtime(),
                hipModuleLaunchKernel(
                    function,
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    shared,
                    on,
                    list,
                    null_mut()
                )
            )
        })
        .map_err(|failure| self.launch_failure(failure, function, [threads, 1, 1]))
    }

    /// Returns the most threads per block that a kernel was compiled for. Device current.
    pub(crate) fn most_threads(&self, function: Function) -> CallResult<u32> {
        let mut most = 0;
        let (place, attribute) = (&raw mut most, FUNCTION_MAX_THREADS_PER_BLOCK);
        // SAFETY: the out-pointer is writable, and the caller passes a live function.
        unsafe {
            hip!(
                self.runtime(),
                hipFuncGetAttribute(place, attribute, function)
            )
        }?;
        Ok(u32::try_from(most).unwrap_or(0))
    }

    /// Corrects the failure of a launch. If a block has more threads than the kernel was compiled for, the
    /// runtime returns the code of a failed kernel, although nothing has run and the device is well.
    #[cold]
    fn launch_failure(&self, failure: Failure, function: Function, threads: [u32; 3]) -> Failure {
        if failure.vendor_code as u32 != result::LAUNCH_FAILURE {
            return failure;
        }
        let wanted: u64 = threads
            .iter()
            .fold(1, |all: u64, &each| all.saturating_mul(each.into()));
        let most = self
            .enter()
            .and_then(|_entered| self.most_threads(function));
        match most {
            Ok(most) if wanted > most.into() => Failure {
                status: Status::INVALID_ARGUMENT,
                message: format!(
                    "a block of {wanted} threads: the kernel was compiled for at most {most} \
                     (`__launch_bounds__`); use fewer threads"
                ),
                ..failure
            },
            _ => failure,
        }
    }
}
