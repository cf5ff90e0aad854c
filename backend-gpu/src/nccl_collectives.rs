//! The contract's `NcclCollectives` over NCCL and RCCL.

use crate::gpu::Gpu;
use crate::nccl::{Communicators, NcclApi};
use crate::open::OpenGpu;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, NcclCollectives};

/// Returns this device's communicators; the first call opens the library.
fn communicators<G: Gpu>(gpu: &G) -> CallResult<&Communicators> {
    let library = G::nccl()?;
    let nccl = &gpu.state().nccl;
    Ok(nccl.get_or_init(|| Communicators::new(library)))
}

impl<G: Gpu> NcclCollectives for OpenGpu<G> {
    fn nccl_description(&self) -> CallResult<LibraryDescription> {
        G::nccl().map(NcclApi::description)
    }

    fn nccl_unique_id(&self) -> CallResult<NcclUniqueId> {
        let library = G::nccl()?;
        // No communicator exists yet, but refusing here spares the other ranks from waiting for one.
        G::check_nccl_permitted()?;
        let _entered = self.enter()?;
        library.identifier()
    }

    fn nccl_create(&self, identifier: &NcclUniqueId, rank: u32, world: u32) -> CallResult<RawNccl> {
        let communicators = communicators(&self.0)?;
        G::check_nccl_permitted()?;
        let _entered = self.enter()?;
        communicators.create(identifier, rank, world)
    }

    unsafe fn nccl_ready(&self, nccl: RawNccl) -> CallResult<bool> {
        // SAFETY: the caller passes a live handle that this device created.
        unsafe { communicators(&self.0)?.ready(nccl) }
    }

    unsafe fn nccl_call(&self, nccl: RawNccl, call: &NcclCall, on: RawStream) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        let _entered = self.enter()?;
        // SAFETY: the caller upholds the contract of `nccl_call`, which is the callee's.
        unsafe { communicators.call(nccl, call, on) }
    }

    fn nccl_group(&self, open: bool) -> CallResult<()> {
        let library = G::nccl()?;
        let _entered = self.enter()?;
        match open {
            true => library.group_open(),
            false => library.group_close(),
        }
    }

    unsafe fn nccl_register(
        &self,
        nccl: RawNccl,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64> {
        let communicators = communicators(&self.0)?;
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live handle, and memory that lives until it is deregistered.
        unsafe { communicators.register(nccl, address, bytes) }
    }

    unsafe fn nccl_deregister(&self, nccl: RawNccl, window: u64) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live handle and its window, which no work uses.
        unsafe { communicators.deregister(nccl, window) }
    }

    unsafe fn nccl_abort(&self, nccl: RawNccl) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        // SAFETY: the caller passes a handle that this device created.
        self.give_back(|| unsafe { communicators.abort(nccl) })
    }

    unsafe fn nccl_destroy(&self, nccl: RawNccl) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        // SAFETY: the caller passes a handle that this device created.
        self.give_back(|| unsafe { communicators.destroy(nccl) })
    }
}
