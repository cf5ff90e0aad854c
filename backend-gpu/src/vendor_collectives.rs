//! The contract's `VendorCollectives` over NCCL and RCCL.

use crate::gpu::Gpu;
use crate::open::OpenGpu;
use crate::vendor_library::{Communicators, VendorLibrary};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, VendorCollectives};

/// Returns this device's communicators; the first call opens the library.
fn communicators<G: Gpu>(gpu: &G) -> CallResult<&Communicators> {
    let library = G::vendor_library()?;
    let vendor = &gpu.parts().vendor;
    Ok(vendor.get_or_init(|| Communicators::new(library)))
}

impl<G: Gpu> VendorCollectives for OpenGpu<G> {
    fn vendor_description(&self) -> CallResult<VendorDescription> {
        G::vendor_library().map(VendorLibrary::description)
    }

    fn vendor_identifier(&self) -> CallResult<VendorIdentifier> {
        let library = G::vendor_library()?;
        // No communicator exists yet, but refusing here spares the other ranks from waiting for one.
        G::check_vendor_permitted()?;
        let _entered = self.enter()?;
        library.identifier()
    }

    fn vendor_create(
        &self,
        identifier: &VendorIdentifier,
        rank: u32,
        world: u32,
    ) -> CallResult<RawVendor> {
        let communicators = communicators(&self.0)?;
        G::check_vendor_permitted()?;
        let _entered = self.enter()?;
        communicators.create(identifier, rank, world)
    }

    unsafe fn vendor_ready(&self, vendor: RawVendor) -> CallResult<bool> {
        // SAFETY: the caller passes a live handle that this device created.
        unsafe { communicators(&self.0)?.ready(vendor) }
    }

    unsafe fn vendor_call(
        &self,
        vendor: RawVendor,
        call: &VendorCall,
        on: RawStream,
    ) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        let _entered = self.enter()?;
        // SAFETY: the caller upholds the contract of `vendor_call`, which is the callee's.
        unsafe { communicators.call(vendor, call, on) }
    }

    fn vendor_group(&self, open: bool) -> CallResult<()> {
        let library = G::vendor_library()?;
        let _entered = self.enter()?;
        match open {
            true => library.group_open(),
            false => library.group_close(),
        }
    }

    unsafe fn vendor_register(
        &self,
        vendor: RawVendor,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64> {
        let communicators = communicators(&self.0)?;
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live handle, and memory that lives until it is deregistered.
        unsafe { communicators.register(vendor, address, bytes) }
    }

    unsafe fn vendor_deregister(&self, vendor: RawVendor, window: u64) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        let _entered = self.enter()?;
        // SAFETY: the caller passes a live handle and its window, which no work uses.
        unsafe { communicators.deregister(vendor, window) }
    }

    unsafe fn vendor_abort(&self, vendor: RawVendor) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        // SAFETY: the caller passes a handle that this device created.
        self.give_back(|| unsafe { communicators.abort(vendor) })
    }

    unsafe fn vendor_destroy(&self, vendor: RawVendor) -> CallResult<()> {
        let communicators = communicators(&self.0)?;
        // SAFETY: the caller passes a handle that this device created.
        self.give_back(|| unsafe { communicators.destroy(vendor) })
    }
}
