//! The vendor's collective library: NCCL or RCCL.

use super::abi::*;
use super::failure::{CallResult, Failure};
use enum_dispatch::enum_dispatch;

/// Creates communicators of NCCL or RCCL, and enqueues the library's calls on them.
///
/// Every rank that joins a communicator ends it once, with [`VendorCollectives::vendor_destroy`] or
/// [`VendorCollectives::vendor_abort`].
#[enum_dispatch]
pub trait VendorCollectives {
    /// Describes the library, which is opened if necessary. Fails with `LIBRARY_MISSING` if it is not installed,
    /// `UNSUPPORTED` if the vendor has none. May block.
    fn vendor_description(&self) -> CallResult<VendorDescription>;
    /// Creates the identifier with which ranks meet. One rank creates it and sends it to all (`ncclGetUniqueId`).
    fn vendor_identifier(&self) -> CallResult<VendorIdentifier>;
    /// Begins to join a communicator of `world` ranks as `rank`. Does not wait for the others
    /// (`ncclCommInitRankConfig`).
    fn vendor_create(
        &self,
        identifier: &VendorIdentifier,
        rank: u32,
        world: u32,
    ) -> CallResult<RawVendor>;
    /// Whether the communicator has completed what was begun. Fails if the library reports a failure of that, or of
    /// work submitted earlier (`ncclCommGetAsyncError`). Does not block.
    ///
    /// # Safety
    /// `vendor` is live.
    unsafe fn vendor_ready(&self, vendor: RawVendor) -> CallResult<bool>;
    /// Opens or closes a group of calls on this thread (`ncclGroupStart`, `ncclGroupEnd`). Groups nest; closing the
    /// outermost one issues all their calls.
    fn vendor_group(&self, open: bool) -> CallResult<()>;
    /// Enqueues one call, or adds it to the open group of this thread.
    ///
    /// # Safety
    /// `vendor` is live and ready; the memory is live until the stream has passed this point.
    unsafe fn vendor_call(
        &self,
        vendor: RawVendor,
        call: &VendorCall,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Registers `bytes` of memory at `address` as a symmetric window and returns the window's handle
    /// (`ncclCommWindowRegister`). A collective call: blocks until all ranks have made it.
    ///
    /// # Safety
    /// `vendor` is live and ready; the memory is live until the window is deregistered.
    unsafe fn vendor_register(
        &self,
        vendor: RawVendor,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64>;
    /// Deregisters a window (`ncclCommWindowDeregister`). May block.
    ///
    /// # Safety
    /// `vendor` is live, `window` came from [`VendorCollectives::vendor_register`], and no work uses it.
    unsafe fn vendor_deregister(&self, vendor: RawVendor, window: u64) -> CallResult<()>;
    /// Stops the communicator's work and destroys it (`ncclCommAbort`). Any thread may call it while another thread
    /// is inside a call.
    ///
    /// # Safety
    /// `vendor` is live and not used again.
    unsafe fn vendor_abort(&self, vendor: RawVendor) -> CallResult<()>;
    /// Destroys an idle communicator (`ncclCommFinalize`, `ncclCommDestroy`), or aborts it if the other ranks do not
    /// follow soon. Blocks for a bounded time.
    ///
    /// # Safety
    /// `vendor` is live and not used again.
    unsafe fn vendor_destroy(&self, vendor: RawVendor) -> CallResult<()>;
}

/// A backend without NCCL or RCCL. It gives the reason, and [`VendorCollectives`] is implemented from that.
pub trait WithoutVendorCollectives {
    /// The reason, and what to use instead.
    const REASON: &'static str;
}

/// Returns the failure of every method of a backend without the library.
fn no_library<B: WithoutVendorCollectives, T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(Status::UNSUPPORTED, call, B::REASON))
}

impl<B: WithoutVendorCollectives> VendorCollectives for B {
    fn vendor_description(&self) -> CallResult<VendorDescription> {
        no_library::<B, _>("vendor_description")
    }

    fn vendor_identifier(&self) -> CallResult<VendorIdentifier> {
        no_library::<B, _>("vendor_identifier")
    }

    fn vendor_create(
        &self,
        _identifier: &VendorIdentifier,
        _rank: u32,
        _world: u32,
    ) -> CallResult<RawVendor> {
        no_library::<B, _>("vendor_create")
    }

    unsafe fn vendor_ready(&self, _vendor: RawVendor) -> CallResult<bool> {
        no_library::<B, _>("vendor_ready")
    }

    fn vendor_group(&self, _open: bool) -> CallResult<()> {
        no_library::<B, _>("vendor_group")
    }

    unsafe fn vendor_call(
        &self,
        _vendor: RawVendor,
        _call: &VendorCall,
        _stream: RawStream,
    ) -> CallResult<()> {
        no_library::<B, _>("vendor_call")
    }

    unsafe fn vendor_register(
        &self,
        _vendor: RawVendor,
        _address: DeviceAddress,
        _bytes: u64,
    ) -> CallResult<u64> {
        no_library::<B, _>("vendor_register")
    }

    unsafe fn vendor_deregister(&self, _vendor: RawVendor, _window: u64) -> CallResult<()> {
        no_library::<B, _>("vendor_deregister")
    }

    unsafe fn vendor_abort(&self, _vendor: RawVendor) -> CallResult<()> {
        no_library::<B, _>("vendor_abort")
    }

    unsafe fn vendor_destroy(&self, _vendor: RawVendor) -> CallResult<()> {
        no_library::<B, _>("vendor_destroy")
    }
}
