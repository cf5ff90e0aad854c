//! The vendor's library of collectives: NCCL, or RCCL.

use super::abi::*;
use super::failure::{CallResult, Failure};
use enum_dispatch::enum_dispatch;

/// Communicators of the vendor's library, and calls on them.
///
/// Every rank joins a communicator, and gives it up once, by [`VendorCollectives::vendor_destroy`] or by
/// [`VendorCollectives::vendor_abort`].
#[enum_dispatch]
pub trait VendorCollectives {
    /// Describes the library, which is opened if it is not yet. `LIBRARY_MISSING` if it is not installed,
    /// `UNSUPPORTED` if the vendor has none. May block.
    fn vendor_description(&self) -> CallResult<VendorDescription>;
    /// Makes a fresh identifier under which ranks meet: one rank makes it and hands it to all
    /// (`ncclGetUniqueId`).
    fn vendor_identifier(&self) -> CallResult<VendorIdentifier>;
    /// Begins to join a communicator of `world` ranks as `rank`; does not wait for the others
    /// (`ncclCommInitRankConfig`).
    fn vendor_create(
        &self,
        identifier: &VendorIdentifier,
        rank: u32,
        world: u32,
    ) -> CallResult<RawVendor>;
    /// Whether what was begun is done. Fails if the library reports that it, or work submitted earlier, has
    /// failed (`ncclCommGetAsyncError`). Not blocking.
    ///
    /// # Safety
    /// `vendor` is live.
    unsafe fn vendor_ready(&self, vendor: RawVendor) -> CallResult<bool>;
    /// Opens a group of calls on this thread, or closes it (`ncclGroupStart`, `ncclGroupEnd`). Groups nest;
    /// the outermost makes all its calls when it is closed.
    fn vendor_group(&self, open: bool) -> CallResult<()>;
    /// Enqueues one call, or adds it to the group that this thread has open.
    ///
    /// # Safety
    /// `vendor` is live and ready; the memory is live until the stream has passed this point.
    unsafe fn vendor_call(
        &self,
        vendor: RawVendor,
        call: &VendorCall,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Makes `bytes` of memory at `address` a symmetric window, and gives the window's handle; all ranks do so
    /// together (`ncclCommWindowRegister`). Blocks until all have.
    ///
    /// # Safety
    /// `vendor` is live and ready; the memory is live until it is deregistered.
    unsafe fn vendor_register(
        &self,
        vendor: RawVendor,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64>;
    /// Ends a window (`ncclCommWindowDeregister`). May block.
    ///
    /// # Safety
    /// `vendor` is live, `window` came from [`VendorCollectives::vendor_register`], no work uses it.
    unsafe fn vendor_deregister(&self, vendor: RawVendor, window: u64) -> CallResult<()>;
    /// Ends all that the communicator is doing and gives it up (`ncclCommAbort`). May be called from any
    /// thread while another is in a call.
    ///
    /// # Safety
    /// `vendor` is live and not used again.
    unsafe fn vendor_abort(&self, vendor: RawVendor) -> CallResult<()>;
    /// Gives an idle communicator up, in order if all ranks do so soon, else by an abort (`ncclCommFinalize`,
    /// `ncclCommDestroy`). Blocks for a bounded time.
    ///
    /// # Safety
    /// `vendor` is live and not used again.
    unsafe fn vendor_destroy(&self, vendor: RawVendor) -> CallResult<()>;
}

/// A backend without a vendor's library of collectives. It says why, and has [`VendorCollectives`] by that.
pub trait WithoutVendorCollectives {
    /// Why there is none, and what to use instead.
    const REASON: &'static str;
}

/// The failure of every method of a backend without a library.
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
