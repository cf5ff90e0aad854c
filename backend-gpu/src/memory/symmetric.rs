//! `SymmetricMemory` for an open GPU.

use super::Content;
use crate::gpu::Gpu;
use crate::open::OpenGpu;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, SymmetricMemory};

impl<G: Gpu> SymmetricMemory for OpenGpu<G> {
    fn allocate(&self, kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation> {
        self.state().memory.allocate(kind, Content::Data, bytes)
    }

    unsafe fn register(
        &self,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        self.state().memory.register(kind, address, bytes)
    }

    unsafe fn free(&self, allocation: RawAllocation) -> CallResult<()> {
        self.state().memory.free(allocation)
    }

    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle> {
        self.state().memory.export(allocation)
    }

    unsafe fn import(&self, handle: &ExportedHandle) -> CallResult<SharedMapping> {
        self.state().memory.import(handle)
    }

    unsafe fn unmap(&self, mapping: RawMapping) -> CallResult<()> {
        self.state().memory.unmap(mapping)
    }

    fn allocate_signals(&self, kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation> {
        self.state().memory.allocate(kind, Content::Signals, bytes)
    }
}
