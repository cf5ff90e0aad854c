//! Streams, events, graphs, host memory, modules and launches.

use crate::driver::constants::*;
use crate::driver::structs::{LaunchAttribute, LaunchConfiguration};
use crate::driver::{Code, call};
use crate::instance::CudaBackend;
use crate::kernels::Kernel;
use crate::modules;
use cudarc::driver::sys::{CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Failure};
use symmem_gpu::{Current, Grid};

/// `cuLaunchKernelEx`.
type LaunchKernelEx = unsafe extern "C" fn(
    *const LaunchConfiguration,
    CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;

/// A kernel may start while the stream's one before it still runs.
const BESIDE: LaunchAttribute = LaunchAttribute {
    kind: LAUNCH_BESIDE_PREDECESSOR,
    padding: 0,
    value: 1,
    rest: [0; 15],
};

/// The driver's stream behind a handle.
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
        Ok(self.parts.capabilities)
    }

    fn description(&self) -> CallResult<DeviceDescription> {
        Ok(self.parts.description)
    }

    fn memory_information(&self) -> CallResult<MemoryInformation> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both places are writable.
        unsafe { call!(self.driver, cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInformation {
            free: free as u64,
            total: total as u64,
        })
    }

    fn stream_create(&self) -> CallResult<RawStream> {
        let _entered = self.enter()?;
        let mut raw = null_mut();
        // SAFETY: the place is writable.
        unsafe {
            call!(
                self.driver,
                cuStreamCreate(&raw mut raw, STREAM_NON_BLOCKING)
            )
        }?;
        Ok(RawStream(handle(raw)))
    }

    unsafe fn stream_destroy(&self, raw: RawStream) -> CallResult<()> {
        // SAFETY: the caller gives a live stream up. Its work still completes.
        self.give_back(|| unsafe { call!(self.driver, cuStreamDestroy_v2(stream(raw))) })
    }

    unsafe fn stream_idle(&self, raw: RawStream) -> CallResult<bool> {
        let _entered = self.enter()?;
        // SAFETY: the stream is live.
        let code = unsafe { (self.driver.table.cuStreamQuery)(stream(raw)) };
        self.driver.check_ready("cuStreamQuery", code)
    }

    unsafe fn stream_wait_event(&self, raw: RawStream, awaited: RawEvent) -> CallResult<()> {
        let _entered = self.enter()?;
        // SAFETY: both are live.
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
        // SAFETY: the place is writable and the stream live.
        unsafe {
            call!(
                self.driver,
                cuStreamIsCapturing(stream(raw), &raw mut status)
            )
        }?;
        // 1 active, 2 invalidated: both take no eager work.
        Ok(status != 0)
    }

    fn event_create(&self) -> CallResult<RawEvent> {
        let _entered = self.enter()?;
        let mut raw = null_mut();
        // SAFETY: the place is writable.
        unsafe { call!(self.driver, cuEventCreate(&raw mut raw, EVENT_DEFAULT)) }?;
        Ok(RawEvent(handle(raw)))
    }

    unsafe fn event_destroy(&self, raw: RawEvent) -> CallResult<()> {
        // SAFETY: the caller gives a live event up.
        self.give_back(|| unsafe { call!(self.driver, cuEventDestroy_v2(event(raw))) })
    }

    unsafe fn event_record(&self, raw: RawEvent, on: RawStream) -> CallResult<()> {
        let _entered = self.enter()?;
        // SAFETY: both are live.
        unsafe { call!(self.driver, cuEventRecord(event(raw), stream(on))) }
    }

    unsafe fn event_done(&self, raw: RawEvent) -> CallResult<bool> {
        let _entered = self.enter()?;
        // SAFETY: the event is live.
        let code = unsafe { (self.driver.table.cuEventQuery)(event(raw)) };
        self.driver.check_ready("cuEventQuery", code)
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> CallResult<u64> {
        let _entered = self.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the place is writable, the events live.
        unsafe {
            call!(
                self.driver,
                cuEventElapsedTime(&raw mut milliseconds, event(start), event(end))
            )
        }?;
        // A float of milliseconds; the driver's resolution is about half a microsecond.
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    unsafe fn capture_begin(&self, raw: RawStream) -> CallResult<()> {
        let _entered = self.enter()?;
        // Relaxed: the stricter modes fail calls that poll events or allocate elsewhere in the
        // process, and a watcher must go on polling while somebody captures.
        // SAFETY: the stream is live.
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
        // SAFETY: the place is writable and the stream live.
        unsafe { call!(self.driver, cuStreamEndCapture(stream(raw), &raw mut graph)) }?;
        Ok(RawGraph(handle(graph)))
    }

    unsafe fn graph_instantiate(&self, raw: RawGraph) -> CallResult<RawGraphExec> {
        let graph: CUgraph = with_exposed_provenance_mut(raw.0 as usize);
        let mut executable = null_mut();
        let made = self.enter().and_then(|_entered| {
            // SAFETY: the place is writable and the graph live.
            unsafe {
                call!(
                    self.driver,
                    cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)
                )
            }
        });
        // SAFETY: the graph is given up here, whether it could be instantiated or not.
        let given_up = self.give_back(|| unsafe { call!(self.driver, cuGraphDestroy(graph)) });
        made?;
        given_up.inspect_err(|_| {
            // SAFETY: made above and given to nobody.
            unsafe { (self.driver.table.cuGraphExecDestroy)(executable) };
        })?;
        Ok(RawGraphExec(handle(executable)))
    }

    unsafe fn graph_launch(&self, graph: RawGraphExec, on: RawStream) -> CallResult<()> {
        let _entered = self.enter()?;
        let executable: CUgraphExec = with_exposed_provenance_mut(graph.0 as usize);
        // SAFETY: both are live, and so is the memory that the graph names.
        unsafe { call!(self.driver, cuGraphLaunch(executable, stream(on))) }
    }

    unsafe fn graph_destroy(&self, graph: RawGraphExec) -> CallResult<()> {
        let executable: CUgraphExec = with_exposed_provenance_mut(graph.0 as usize);
        // SAFETY: the caller gives a live graph up.
        self.give_back(|| unsafe { call!(self.driver, cuGraphExecDestroy(executable)) })
    }

    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory> {
        let _entered = self.enter()?;
        let mut pointer = null_mut();
        // SAFETY: the place is writable.
        unsafe {
            call!(
                self.driver,
                cuMemHostAlloc(&raw mut pointer, bytes as usize, HOST_PORTABLE_AND_MAPPED)
            )
        }?;
        // SAFETY: the driver gave `bytes` bytes, which nobody else has yet.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes as usize) };
        self.host_memory(pointer, bytes).inspect_err(|_| {
            // SAFETY: allocated above and given to nobody.
            unsafe { (self.driver.table.cuMemFreeHost)(pointer) };
        })
    }

    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut(memory.host as usize);
        // SAFETY: the caller gives live host memory up.
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
            // SAFETY: registered above; nothing uses it yet.
            unsafe { (self.driver.table.cuMemHostUnregister)(pointer) };
        })
    }

    unsafe fn host_unregister(&self, pointer: u64) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut(pointer as usize);
        // SAFETY: registered, and no longer used by the device.
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
        // SAFETY: the range is live until the stream has passed.
        unsafe {
            call!(
                self.driver,
                cuMemsetD8Async(destination.0, value, bytes as usize, stream(on))
            )
        }
    }

    unsafe fn module_load(&self, image: &[u8]) -> CallResult<RawModule> {
        let _entered = self.enter()?;
        // PTX must end with a zero; behind a cubin it does no harm.
        let image = [image, &[0]].concat();
        // SAFETY: the context is current; the caller vouches for the code.
        unsafe { modules::load(self.driver, &image) }.map(|module| RawModule(handle(module)))
    }

    unsafe fn module_unload(&self, raw: RawModule) -> CallResult<()> {
        let module: CUmodule = with_exposed_provenance_mut(raw.0 as usize);
        // SAFETY: the caller gives a live module up, none of whose kernels runs.
        self.give_back(|| unsafe { call!(self.driver, cuModuleUnload(module)) })
    }

    unsafe fn module_function(&self, raw: RawModule, name: &str) -> CallResult<RawFunction> {
        let _entered = self.enter()?;
        let module: CUmodule = with_exposed_provenance_mut(raw.0 as usize);
        let shared_bytes = self.parts.capabilities.shared_memory_per_block;
        // SAFETY: the module is live and the context current.
        unsafe { modules::function(self.driver, module, name.as_bytes(), shared_bytes) }
            .map(|function| RawFunction(handle(function)))
    }

    fn builtin_function(&self, name: &str) -> CallResult<RawFunction> {
        let kernel = self.parts.kernels.by_name(name.as_bytes())?;
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
        // SAFETY: the caller's own conditions are those of this call.
        unsafe { self.launch_packed(function, geometry, first, bytes, on) }
    }
}

impl CudaBackend {
    /// The device's address of host memory that it has been given.
    fn host_memory(&self, pointer: *mut c_void, bytes: u64) -> CallResult<HostMemory> {
        let mut address = 0;
        // SAFETY: the place is writable; the driver knows the memory.
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

    /// Launches a kernel whose parameters are one buffer, which the driver copies.
    ///
    /// # Safety
    /// The function is live, the buffer holds its parameters in the layout of its ABI, and the
    /// memory it touches is live until the stream has passed this point.
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
        // SAFETY: `extra` is the list that the driver wants, and it reads the buffer before it
        // returns; the rest is the caller's word.
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

    /// As [`CudaBackend::launch_packed`], of a kernel of ours, which takes one struct by value and waits for
    /// its predecessor itself: the driver may start it while that one still runs, which hides the launch.
    ///
    /// Programmatic dependent launch: CUDA Programming Guide, "Programmatic Dependent Launch and
    /// Synchronization". Without the entry point (before CUDA 11.8) it is an ordinary launch.
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
            // SAFETY: the caller's word.
            return unsafe { self.launch_packed(function, &geometry, argument, bytes, on) };
        };
        // SAFETY: the caller's word.
        unsafe { self.launch_with(launch, function, grid, &[BESIDE], argument, on) }
    }

    /// As [`CudaBackend::launch_beside`], in clusters of so many blocks: CUDA Programming Guide, "Thread Block
    /// Clusters". Beside the predecessor where `beside`.
    ///
    /// # Errors
    /// `UNSUPPORTED` without the entry point (before CUDA 11.8).
    ///
    /// # Safety
    /// As there.
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
                "this driver knows no clusters of blocks; they came with CUDA 11.8",
            )
        })?;
        let mut rest = [0; 15];
        // Along y and z.
        [rest[0], rest[1]] = [1, 1];
        let cluster = LaunchAttribute {
            kind: LAUNCH_CLUSTERS,
            padding: 0,
            value: cluster,
            rest,
        };
        let attributes = [cluster, BESIDE];
        let attributes = &attributes[..1 + usize::from(kernel.beside)];
        // SAFETY: the caller's word.
        unsafe { self.launch_with(launch, kernel.function, grid, attributes, argument, on) }
    }

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
        // SAFETY: the driver reads configuration and parameter before it returns; the rest is the
        // caller's word.
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
