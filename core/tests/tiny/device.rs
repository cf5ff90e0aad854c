//! Streams that are always idle, host memory, and no device code.

use super::{Tiny, panic_if_asked, refuse};
use std::mem::MaybeUninit;
use std::ptr::with_exposed_provenance_mut;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Implementation};

impl Device for Tiny {
    fn capabilities(&self) -> CallResult<Capabilities> {
        panic_if_asked("capabilities");
        let mut row = [TransferRow::default(); 8];
        row[0] = TransferRow {
            bytes: u64::MAX,
            method: MethodCode::COPY_ENGINE,
            blocks: 1,
            threads: 1,
            ..TransferRow::default()
        };
        let mut share_kinds = [ShareKindCode::default(); 4];
        share_kinds[0] = ShareKindCode::SAME_PROCESS;
        Ok(Capabilities {
            flags: 0,
            share_kinds,
            share_granularity: 4096,
            shared_memory_per_block: 0,
            fanout: 1,
            put_rows: row,
            get_rows: row,
            driver_version: 1,
            reduce_inbox_bytes: 0,
        })
    }
    fn description(&self) -> CallResult<DeviceDescription> {
        Self::describe_device(self.ordinal)
    }
    fn memory_information(&self) -> CallResult<MemoryInformation> {
        panic_if_asked("memory_information");
        Ok(MemoryInformation {
            free: 1 << 20,
            total: 1 << 30,
        })
    }
    fn stream_create(&self) -> CallResult<RawStream> {
        Ok(RawStream(1))
    }

    fn stream_create_urgent(&self) -> CallResult<RawStream> {
        self.stream_create()
    }
    unsafe fn stream_destroy(&self, _stream: RawStream) -> CallResult<()> {
        Ok(())
    }
    unsafe fn stream_idle(&self, _stream: RawStream) -> CallResult<bool> {
        Ok(true)
    }
    unsafe fn stream_wait_event(&self, _stream: RawStream, _event: RawEvent) -> CallResult<()> {
        Ok(())
    }
    unsafe fn stream_capturing(&self, _stream: RawStream) -> CallResult<bool> {
        Ok(false)
    }
    fn event_create(&self) -> CallResult<RawEvent> {
        Ok(RawEvent(1))
    }
    unsafe fn event_destroy(&self, _event: RawEvent) -> CallResult<()> {
        Ok(())
    }
    unsafe fn event_record(&self, _event: RawEvent, _stream: RawStream) -> CallResult<()> {
        Ok(())
    }
    unsafe fn event_done(&self, _event: RawEvent) -> CallResult<bool> {
        Ok(true)
    }
    unsafe fn event_elapsed(&self, _start: RawEvent, _end: RawEvent) -> CallResult<u64> {
        Ok(0)
    }
    unsafe fn capture_begin(&self, _stream: RawStream) -> CallResult<()> {
        refuse("capture_begin")
    }
    unsafe fn capture_end(&self, _stream: RawStream) -> CallResult<RawGraph> {
        refuse("capture_end")
    }
    unsafe fn graph_instantiate(&self, _graph: RawGraph) -> CallResult<RawGraphExec> {
        refuse("graph_instantiate")
    }
    unsafe fn graph_launch(&self, _graph: RawGraphExec, _stream: RawStream) -> CallResult<()> {
        refuse("graph_launch")
    }
    unsafe fn graph_destroy(&self, _graph: RawGraphExec) -> CallResult<()> {
        refuse("graph_destroy")
    }
    fn host_allocate(&self, bytes: u64) -> CallResult<HostMemory> {
        let host = self.take(bytes)?;
        Ok(HostMemory {
            host,
            device: DeviceAddress(host),
            bytes,
        })
    }
    unsafe fn host_free(&self, memory: HostMemory) -> CallResult<()> {
        self.give_back(memory.host)
    }
    unsafe fn host_register(&self, pointer: u64, bytes: u64) -> CallResult<HostMemory> {
        Ok(HostMemory {
            host: pointer,
            device: DeviceAddress(pointer),
            bytes,
        })
    }
    unsafe fn host_unregister(&self, _pointer: u64) -> CallResult<()> {
        Ok(())
    }
    unsafe fn memory_set(
        &self,
        destination: DeviceAddress,
        value: u8,
        bytes: u64,
        _stream: RawStream,
    ) -> CallResult<()> {
        let pointer = with_exposed_provenance_mut::<u8>(destination.0 as usize);
        // SAFETY: the caller passes live memory.
        unsafe { pointer.write_bytes(value, bytes as usize) };
        Ok(())
    }
    fn check_memory(&self, _address: DeviceAddress, _bytes: u64) -> CallResult<()> {
        refuse("check_memory")
    }
    unsafe fn module_load(&self, _image: &[u8]) -> CallResult<RawModule> {
        refuse("module_load")
    }
    unsafe fn module_unload(&self, _module: RawModule) -> CallResult<()> {
        refuse("module_unload")
    }
    unsafe fn module_function(&self, _module: RawModule, _name: &str) -> CallResult<RawFunction> {
        refuse("module_function")
    }
    unsafe fn function_parameter_bytes(&self, _function: RawFunction) -> CallResult<Option<u64>> {
        refuse("function_parameter_bytes")
    }
    fn builtin_function(&self, _name: &str) -> CallResult<RawFunction> {
        refuse("builtin_function")
    }
    unsafe fn launch(
        &self,
        _function: RawFunction,
        _geometry: &Geometry,
        _arguments: &[MaybeUninit<u8>],
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("launch")
    }
}
