//! The trait `Device`: streams, events, graphs, host memory, modules and launches.

use crate::driver::constants::*;
use crate::driver::structs::{LaunchAttribute, LaunchConfiguration};
use crate::driver::{Code, call};
use crate::instance::CudaBackend;
use crate::kernels::Kernel;
use crate::memory;
use crate::modules;
use cudarc::driver::sys::{CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Failure};
use symmem_gpu::memory::check_place;
use symmem_gpu::{Current, Grid, MOST_URGENT, refused_launch};

/// `cuLaunchKernelEx`.
type LaunchKernelEx = unsafe extern "C" fn(
    *const LaunchConfiguration,
    CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;

/// Attribute of programmatic dependent launch: the kernel may start while its predecessor on the stream runs.
const BESIDE: LaunchAttribute = LaunchAttribute {
    kind: LAUNCH_BESIDE_PREDECESSOR,
    padding: 0,
    value: 1,
    rest: [0; 15],
};

/// Returns the driver's stream behind a handle.
pub(crate) fn stream(raw: RawStream) -> CUstream {
    with_exposed_provenance_mut(raw.0 as usize)
}

fn event(raw: RawEvent) -> CUevent {
    with_exposed_provenance_mut(raw.0 as usize)
}

fn handle<T>(pointer: *mut T) -> u64 {
    pointer.expose_provenance() as u64
}

impl Device for CudaBackend {
    fn capabilities(&self) -> CallResult<Capabilities> {
        Ok(self.state.capabilities)
    }

    fn description(&self) -> CallResult<DeviceDescription> {
        Ok(self.state.description)
    }

    fn memory_information(&self) -> CallResult<MemoryInformation> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both out-pointers are writable.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInformation {
            free: free as u64,
            total: total as u64,
        })
    }

    fn stream_create(&self) -> CallResult<RawStream> {
        let _entered = self.enter()?;
        let mut raw = null_mut();
        // SAFETY: the out-pointer is writable.
        unsafe {
            call!(
                self.driver,
                cuStreamCreate(&raw mut raw, STREAM_NON_BLOCKING)
            )
        }?;
        Ok(RawStream(handle(raw)))
    }

    fn stream_create_urgent(&self) -> CallResult<RawStream> {
        let _entered = self.enter()?;
        let mut raw = null_mut();
        // SAFETY: the out-pointer is writable.
        unsafe {
            call!(
                self.driver,
                cuStreamCreateWithPriority(&raw mut raw, STREAM_NON_BLOCKING, MOST_URGENT)
            )
        }?;
        Ok(RawStream(handle(raw)))
    }

    unsafe fn stream_destroy(&self, raw: RawStream) -> CallResult<()> {
        // SAFETY: the caller passes a live stream and does not use it again. Its enqueued work still completes.
        self.give_back(|| unsafe { call!(self.driver, cuStreamDestroy_v2(stream(raw))) })
    }

    unsafe fn stream_idle(&self, raw: RawStream) -> CallResult<bool> {
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live stream.
        let code = unsafe { (self.driver.table.cuStreamQuery)(stream(raw)) };
        self.driver.check_ready("cuStreamQuery", code)
    }

    unsafe fn stream_wait_event(&self, raw: RawStream, awaited: RawEvent) -> CallResult<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live stream and event.
        unsafe {
            call!(
                self.driver,
                cuStreamWaitEvent(stream(raw), event(awaited), 0)
            )
        }
    }

    unsafe fn stream_capturing(&self, raw: RawStream) -> CallResult<bool> {
        let _entered = self.enter()?;
        let mut status = 0;
        // SAFETY: the out-pointer is writable, and the caller passes a live stream.
        unsafe {
            call!(
                self.driver,
                cuStreamIsCapturing(stream(raw), &raw mut status)
            )
        }?;
        // 1 is active, 2 invalidated; neither accepts eager work.
        Ok(status != 0)
    }

    fn event_create(&self) -> CallResult<RawEvent> {
        let _entered = self.enter()?;
        let mut raw = null_mut();
        // SAFETY: the out-pointer is writable.
        unsafe { call!(self.driver, cuEventCreate(&raw mut raw, EVENT_DEFAULT)) }?;
        Ok(RawEvent(handle(raw)))
    }

    unsafe fn event_destroy(&self, raw: RawEvent) -> CallResult<()> {
        // SAFETY: the caller passes a live event and does not use it again.
        self.give_back(|| unsafe { call!(self.driver, cuEventDestroy_v2(event(raw))) })
    }

    unsafe fn event_record(&self, raw: RawEvent, on: RawStream) -> CallResult<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live event and stream.
        unsafe { call!(self.driver, cuEventRecord(event(raw), stream(on))) }
    }

    unsafe fn event_done(&self, raw: RawEvent) -> CallResult<bool> {
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live event.
        let code = unsafe { (self.driver.table.cuEventQuery)(event(raw)) };
        self.driver.check_ready("cuEventQuery", code)
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> CallResult<u64> {
        let _entered = self.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the out-pointer is writable, and the caller passes live events.
        unsafe {
            call!(
                self.driver,
                cuEventElapsedTime(&raw mut milliseconds, event(start), event(end))
            )
        }?;
        // The driver returns milliseconds, with a resolution of about half a microsecond.
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    unsafe fn capture_begin(&self, raw: RawStream) -> CallResult<()> {
        let _entered = self.enter()?;
        // Relaxed, because the stricter modes fail calls of other threads that poll events or allocate, and the
        // watcher must go on polling during a capture.
        // SAFETY: the caller passes a live stream.
        unsafe {
            call!(
                self.driver,
                cuStreamBeginCapture_v2(stream(raw), CAPTURE_MODE_RELAXED)
            )
        }
    }

    unsafe fn capture_end(&self, raw: RawStream) -> CallResult<RawGraph> {
        let _entered = self.enter()?;
        let mut graph = null_mut();
        // SAFETY: the out-pointer is writable, and the caller passes a live stream.
        unsafe { call!(self.driver, cuStreamEndCapture(stream(raw), &raw mut graph)) }?;
        Ok(RawGraph(handle(graph)))
    }

    unsafe fn graph_instantiate(&self, raw: RawGraph) -> CallResult<RawGraphExec> {
        let graph: CUgraph = with_exposed_provenance_mut(raw.0 as usize);
        let mut executable = null_mut();
        let made = self.enter().and_then(|_entered| {
            // SAFETY: the out-pointer is writable, and the caller passes a live graph.
            unsafe {
                call!(
                    self.driver,
                    cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)
                )
            }
        });
        // SAFETY: the caller passes the graph's ownership, so it is destroyed here even if instantiating failed.
        let given_up = self.give_back(|| unsafe { call!(self.driver, cuGraphDestroy(graph)) });
        made?;
        given_up.inspect_err(|_| {
            // SAFETY: the executable graph was created above and nobody else has it.
            unsafe { (self.driver.table.cuGraphExecDestroy)(executable) };
        })?;
        Ok(RawGraphExec(handle(executable)))
    }

    unsafe fn graph_launch(&self, graph: RawGraphExec, on: RawStream) -> CallResult<()> {
        let _entered = self.enter()?;
        let executable: CUgraphExec = with_exposed_provenance_mut(graph.0 as usize);
        // SAFETY: the caller passes a live graph and stream, and keeps the memory that the graph uses live.
        unsafe { call!(self.driver, cuGraphLaunch(executable, stream(on))) }
    }

    unsafe fn graph_destroy(&self, graph: RawGraphExec) -> CallResult<()> {
        let executable: CUgraphExec = with_exposed_provenance_mut(graph.0 as usize);
        // SAFETY: the caller passes a live graph and does not use it again.
        self.give_back(|| unsafe { call!(self.driver, cuGraphExecDestroy(executable)) })
    }

    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory> {
        let _entered = self.enter()?;
        let mut pointer = null_mut();
        // SAFETY: the out-pointer is writable.
        unsafe {
            call!(
                self.driver,
                cuMemHostAlloc(&raw mut pointer, bytes as usize, HOST_PORTABLE_AND_MAPPED)
            )
        }?;
        // SAFETY: the driver allocated `bytes` bytes, and nobody else has the pointer yet.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes as usize) };
        self.host_memory(pointer, bytes).inspect_err(|_| {
            // SAFETY: the memory was allocated above and nobody else has it.
            unsafe { (self.driver.table.cuMemFreeHost)(pointer) };
        })
    }

    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut(memory.host as usize);
        // SAFETY: the caller passes live host memory and does not use it again.
        self.give_back(|| unsafe { call!(self.driver, cuMemFreeHost(pointer)) })
    }

    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory> {
        let _entered = self.enter()?;
        let pointer = with_exposed_provenance_mut::<c_void>(pointer as usize);
        // SAFETY: the caller keeps the memory mapped until it is unregistered.
        unsafe {
            call!(
                self.driver,
                cuMemHostRegister_v2(pointer, bytes as usize, HOST_PORTABLE_AND_MAPPED)
            )
        }?;
        self.host_memory(pointer, bytes).inspect_err(|_| {
            // SAFETY: the memory was registered above, and nothing uses it yet.
            unsafe { (self.driver.table.cuMemHostUnregister)(pointer) };
        })
    }

    unsafe fn host_unregister(&self, pointer: u64) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut(pointer as usize);
        // SAFETY: the caller passes registered memory that the device no longer uses.
        self.give_back(|| unsafe { call!(self.driver, cuMemHostUnregister(pointer)) })
    }

    unsafe fn memory_set(
        &self,
        destination: DeviceAddress,
        value: u8,
        bytes: u64,
        on: RawStream,
    ) -> CallResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter()?;
        // SAFETY: the caller keeps the range live until the stream has passed this point.
        unsafe {
            call!(
                self.driver,
                cuMemsetD8Async(destination.0, value, bytes as usize, stream(on))
            )
        }
    }

    unsafe fn module_load(&self, image: &[u8]) -> CallResult<RawModule> {
        let _entered = self.enter()?;
        // PTX must end with a zero byte, which a cubin tolerates.
        let image = [image, &[0]].concat();
        // SAFETY: the context is current, and the caller says that the code is safe to run.
        unsafe { modules::load(self.driver, &image) }.map(|module| RawModule(handle(module)))
    }

    fn check_memory(&self, address: DeviceAddress, bytes: u64) -> CallResult<()> {
        let place = |at| memory::place(self.driver, at);
        check_place(self.state.description.ordinal, address, bytes, place)
    }

    unsafe fn module_unload(&self, raw: RawModule) -> CallResult<()> {
        let module: CUmodule = with_exposed_provenance_mut(raw.0 as usize);
        // SAFETY: the caller passes a live module, none of whose kernels runs, and does not use it again.
        self.give_back(|| unsafe { call!(self.driver, cuModuleUnload(module)) })
    }

    unsafe fn module_function(&self, raw: RawModule, name: &str) -> CallResult<RawFunction> {
        let _entered = self.enter()?;
        let module: CUmodule = with_exposed_provenance_mut(raw.0 as usize);
        let shared_bytes = self.state.capabilities.shared_memory_per_block;
        // SAFETY: the caller passes a live module, and the context is current.
        unsafe { modules::function(self.driver, module, name.as_bytes(), shared_bytes) }
            .map(|function| RawFunction(handle(function)))
    }

    unsafe fn function_parameter_bytes(&self, raw: RawFunction) -> CallResult<Option<u64>> {
        let _entered = self.enter()?;
        let function: CUfunction = with_exposed_provenance_mut(raw.0 as usize);
        // SAFETY: the caller passes a live function, and the context is current.
        unsafe { modules::parameter_bytes(self.driver, function) }
    }

    fn builtin_function(&self, name: &str) -> CallResult<RawFunction> {
        let kernel = self.state.kernels.by_name(name.as_bytes())?;
        Ok(RawFunction(handle(kernel.function)))
    }

    unsafe fn launch(
        &self,
        raw: RawFunction,
        geometry: &Geometry,
        arguments: &[MaybeUninit<u8>],
        on: RawStream,
    ) -> CallResult<()> {
        let function: CUfunction = with_exposed_provenance_mut(raw.0 as usize);
        let (first, bytes) = (arguments.as_ptr().cast(), arguments.len());
        // SAFETY: the caller upholds the contract of `Device::launch`, which is the callee's.
        unsafe { self.launch_packed(function, geometry, first, bytes, on) }
            .map_err(|failure| refused_launch(failure, geometry, bytes))
    }
}

impl CudaBackend {
    /// Returns the device address of host memory that was allocated or registered.
    fn host_memory(&self, pointer: *mut c_void, bytes: u64) -> CallResult<HostMemory> {
        let mut address = 0;
        // SAFETY: the out-pointer is writable, and the driver knows the memory.
        unsafe {
            call!(
                self.driver,
                cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0)
            )
        }?;
        Ok(HostMemory {
            host: handle(pointer),
            device: DeviceAddress(address),
            bytes,
        })
    }

    /// Launches a kernel whose parameters are one buffer, which the driver copies before this returns.
    ///
    /// # Safety
    /// The function is live, the buffer holds its parameters in the layout of its ABI, and the memory that the
    /// kernel accesses is live until the stream has passed this point.
    pub(crate) unsafe fn launch_packed(
        &self,
        function: CUfunction,
        geometry: &Geometry,
        arguments: *const c_void,
        mut bytes: usize,
        on: RawStream,
    ) -> CallResult<()> {
        let mut extra = [
            std::ptr::without_provenance_mut(LAUNCH_PARAMETER_BUFFER_POINTER),
            arguments.cast_mut(),
            std::ptr::without_provenance_mut(LAUNCH_PARAMETER_BUFFER_SIZE),
            (&raw mut bytes).cast(),
            std::ptr::without_provenance_mut(LAUNCH_PARAMETER_END),
        ];
        let (blocks, threads) = (geometry.blocks, geometry.threads);
        let _entered = self.enter()?;
        // SAFETY: `extra` is a list as the driver documents it, and the driver reads the buffer before it
        // returns. The caller upholds the rest of the contract.
        unsafe {
            call!(
                self.driver,
                cuLaunchKernel(
                    function,
                    blocks[0],
                    blocks[1],
                    blocks[2],
                    threads[0],
                    threads[1],
                    threads[2],
                    geometry.shared_memory,
                    stream(on),
                    null_mut(),
                    extra.as_mut_ptr(),
                )
            )
        }
    }

    /// Launches a kernel of this crate as [`CudaBackend::launch_packed`] does, but lets it start while its
    /// predecessor on the stream still runs, which hides the launch. The kernel takes one struct by value and
    /// itself waits for its predecessor.
    ///
    /// Programmatic dependent launch: CUDA Programming Guide, "Programmatic Dependent Launch and
    /// Synchronization". An ordinary launch if the driver lacks the entry point (before CUDA 11.8).
    ///
    /// # Safety
    /// As [`Device::launch`]; the kernel runs `griddepcontrol.wait` before it touches memory.
    #[inline]
    pub(crate) unsafe fn launch_beside(
        &self,
        function: CUfunction,
        grid: Grid,
        argument: *const c_void,
        bytes: usize,
        on: RawStream,
    ) -> CallResult<()> {
        let Some(launch) = self.driver.table.cuLaunchKernelEx else {
            let geometry = Geometry {
                blocks: [grid.blocks, 1, 1],
                threads: [grid.threads, 1, 1],
                shared_memory: grid.shared_memory,
            };
            // SAFETY: the caller upholds this function's contract, which is the callee's.
            return unsafe { self.launch_packed(function, &geometry, argument, bytes, on) };
        };
        // SAFETY: the caller upholds this function's contract, which is the callee's.
        unsafe { self.launch_with(launch, function, grid, &[BESIDE], argument, on) }
    }

    /// Launches a kernel in clusters of `cluster` blocks: CUDA Programming Guide, "Thread Block Clusters". Uses
    /// programmatic dependent launch if [`Kernel::beside`].
    ///
    /// # Errors
    /// `UNSUPPORTED` if the driver lacks the entry point (before CUDA 11.8).
    ///
    /// # Safety
    /// As [`CudaBackend::launch_beside`].
    pub(crate) unsafe fn launch_clusters(
        &self,
        kernel: Kernel,
        grid: Grid,
        cluster: u32,
        argument: *const c_void,
        on: RawStream,
    ) -> CallResult<()> {
        let launch = self.driver.table.cuLaunchKernelEx.ok_or_else(|| {
            Failure::new(
                Status::UNSUPPORTED,
                "cuLaunchKernelEx",
                "this driver has no thread block clusters; update it to CUDA 11.8 or newer",
            )
        })?;
        let mut rest = [0; 15];
        // Cluster dimensions along y and z.
        [rest[0], rest[1]] = [1, 1];
        let cluster = LaunchAttribute {
            kind: LAUNCH_CLUSTERS,
            padding: 0,
            value: cluster,
            rest,
        };
        let attributes = [cluster, BESIDE];
        let attributes = &attributes[..1 + usize::from(kernel.beside)];
        // SAFETY: the caller upholds this function's contract, which is the callee's.
        unsafe { self.launch_with(launch, kernel.function, grid, attributes, argument, on) }
    }

    /// Launches a kernel with launch attributes.
    ///
    /// # Safety
    /// As [`CudaBackend::launch_beside`].
    #[inline]
    unsafe fn launch_with(
        &self,
        launch: LaunchKernelEx,
        function: CUfunction,
        grid: Grid,
        attributes: &[LaunchAttribute],
        argument: *const c_void,
        on: RawStream,
    ) -> CallResult<()> {
        let configuration = LaunchConfiguration {
            blocks: [grid.blocks, 1, 1],
            threads: [grid.threads, 1, 1],
            shared_memory: grid.shared_memory,
            stream: stream(on),
            attributes: attributes.as_ptr(),
            count: attributes.len() as u32,
        };
        let mut parameter = argument.cast_mut();
        let _entered = self.enter()?;
        // SAFETY: the driver reads configuration and parameter before it returns. The caller upholds the rest
        // of the contract.
        let code = unsafe {
            launch(
                &raw const configuration,
                function,
                &raw mut parameter,
                null_mut(),
            )
        };
        self.driver.check("cuLaunchKernelEx", code)
    }
}
