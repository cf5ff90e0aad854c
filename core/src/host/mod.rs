//! placeholder
use crate::backend::abi::*;
use crate::backend::{
    CallResult, Collectives, Device, Failure, RemoteAccess, Signals, SymmetricMemory,
};
pub struct HostBackend;
impl Device for HostBackend {
    fn capabilities(&self) -> CallResult<Capabilities> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    fn description(&self) -> CallResult<DeviceDescription> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    fn memory_information(&self) -> CallResult<MemoryInformation> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    fn stream_create(&self) -> CallResult<RawStream> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn stream_destroy(&self, stream: RawStream) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn stream_idle(&self, stream: RawStream) -> CallResult<u32> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn stream_capturing(&self, stream: RawStream) -> CallResult<u32> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    fn event_create(&self) -> CallResult<RawEvent> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn event_destroy(&self, event: RawEvent) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn event_done(&self, event: RawEvent) -> CallResult<u32> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> CallResult<u64> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn capture_begin(&self, stream: RawStream) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn capture_end(&self, stream: RawStream) -> CallResult<RawGraph> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn graph_instantiate(&self, graph: RawGraph) -> CallResult<RawGraphExec> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn graph_launch(&self, graph: RawGraphExec, stream: RawStream) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn graph_destroy(&self, graph: RawGraphExec) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn host_unregister(&self, pointer: u64) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn memory_set(
        &self,
        destination: DeviceAddress,
        value: u32,
        bytes: u64,
        stream: RawStream,
    ) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn module_load(&self, data: *const u8, bytes: u64) -> CallResult<RawModule> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn module_unload(&self, module: RawModule) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn module_function(
        &self,
        module: RawModule,
        name: *const u8,
        length: u64,
    ) -> CallResult<RawFunction> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn builtin_function(&self, name: *const u8, length: u64) -> CallResult<RawFunction> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn launch(
        &self,
        function: RawFunction,
        geometry: &Geometry,
        arguments: *const u8,
        bytes: u64,
        stream: RawStream,
    ) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
}
impl SymmetricMemory for HostBackend {
    fn allocate(&self, kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn register(
        &self,
        kind: ShareKind,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn free(&self, allocation: RawAllocation) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn import(&self, handle: &ExportedHandle) -> CallResult<SharedMapping> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn unmap(&self, mapping: RawMapping) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
}
impl RemoteAccess for HostBackend {
    unsafe fn transfer(&self, transfer: &Transfer, stream: RawStream) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
}
impl Signals for HostBackend {
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        placement: SignalPlacement,
        stream: RawStream,
    ) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        placement: SignalPlacement,
        stream: RawStream,
    ) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
}
impl Collectives for HostBackend {
    unsafe fn barrier(&self, barrier: &Barrier, stream: RawStream) -> CallResult<()> {
        Err(Failure::new(Status::UNSUPPORTED, "", ""))
    }
}
