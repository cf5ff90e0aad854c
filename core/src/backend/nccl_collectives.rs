//! The vendor's collective library: NCCL or RCCL.

use super::abi::*;
use super::failure::{CallResult, Failure};
use enum_dispatch::enum_dispatch;

/// Creates communicators of NCCL or RCCL, and enqueues the library's calls on them.
///
/// Every rank that joins a communicator ends it once, with [`NcclCollectives::nccl_destroy`] or
/// [`NcclCollectives::nccl_abort`].
#[enum_dispatch]
pub trait NcclCollectives {
    /// Describes the library, which is opened if necessary. Fails with `LIBRARY_MISSING` if it is not installed,
    /// `UNSUPPORTED` if the vendor has none. May block.
    fn nccl_description(&self) -> CallResult<LibraryDescription>;
    /// Creates the identifier with which ranks meet. One rank creates it and sends it to all (`ncclGetUniqueId`).
    fn nccl_unique_id(&self) -> CallResult<NcclUniqueId>;
    /// Begins to join a communicator of `world` ranks as `rank`. Does not wait for the others
    /// (`ncclCommInitRankConfig`).
    fn nccl_create(&self, identifier: &NcclUniqueId, rank: u32, world: u32) -> CallResult<RawNccl>;
    /// Whether the communicator has completed what was begun. Fails if the library reports a failure of that, or of
    /// work submitted earlier (`ncclCommGetAsyncError`). Does not block.
    ///
    /// # Safety
    /// `nccl` is live.
    unsafe fn nccl_ready(&self, nccl: RawNccl) -> CallResult<bool>;
    /// Opens or closes a group of calls on this thread (`ncclGroupStart`, `ncclGroupEnd`). Groups nest; closing the
    /// outermost one issues all their calls.
    fn nccl_group(&self, open: bool) -> CallResult<()>;
    /// Enqueues one call, or adds it to the open group of this thread.
    ///
    /// # Safety
    /// `nccl` is live and ready; the memory is live until the stream has passed this point.
    unsafe fn nccl_call(&self, nccl: RawNccl, call: &NcclCall, stream: RawStream)
    -> CallResult<()>;
    /// Registers `bytes` of memory at `address` as a symmetric window and returns the window's handle
    /// (`ncclCommWindowRegister`). A collective call: blocks until all ranks have made it.
    ///
    /// # Safety
    /// `nccl` is live and ready; the memory is live until the window is deregistered.
    unsafe fn nccl_register(
        &self,
        nccl: RawNccl,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64>;
    /// Deregisters a window (`ncclCommWindowDeregister`). May block.
    ///
    /// # Safety
    /// `nccl` is live, `window` came from [`NcclCollectives::nccl_register`], and no work uses it.
    unsafe fn nccl_deregister(&self, nccl: RawNccl, window: u64) -> CallResult<()>;
    /// Stops the communicator's work and destroys it (`ncclCommAbort`). Any thread may call it while another thread
    /// is inside a call.
    ///
    /// # Safety
    /// `nccl` is live and not used again.
    unsafe fn nccl_abort(&self, nccl: RawNccl) -> CallResult<()>;
    /// Destroys an idle communicator (`ncclCommFinalize`, `ncclCommDestroy`), or aborts it if the other ranks do not
    /// follow soon. Blocks for a bounded time.
    ///
    /// # Safety
    /// `nccl` is live and not used again.
    unsafe fn nccl_destroy(&self, nccl: RawNccl) -> CallResult<()>;
}

/// A backend without NCCL or RCCL. It gives the reason, and [`NcclCollectives`] is implemented from that.
pub trait WithoutNcclCollectives {
    /// The reason, and what to use instead.
    const REASON: &'static str;
}

/// Returns the failure of every method of a backend without the library.
fn no_library<B: WithoutNcclCollectives, T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(Status::UNSUPPORTED, call, B::REASON))
}

impl<B: WithoutNcclCollectives> NcclCollectives for B {
    fn nccl_description(&self) -> CallResult<LibraryDescription> {
        no_library::<B, _>("nccl_description")
    }

    fn nccl_unique_id(&self) -> CallResult<NcclUniqueId> {
        no_library::<B, _>("nccl_unique_id")
    }

    fn nccl_create(
        &self,
        _identifier: &NcclUniqueId,
        _rank: u32,
        _world: u32,
    ) -> CallResult<RawNccl> {
        no_library::<B, _>("nccl_create")
    }

    unsafe fn nccl_ready(&self, _nccl: RawNccl) -> CallResult<bool> {
        no_library::<B, _>("nccl_ready")
    }

    fn nccl_group(&self, _open: bool) -> CallResult<()> {
        no_library::<B, _>("nccl_group")
    }

    unsafe fn nccl_call(
        &self,
        _nccl: RawNccl,
        _call: &NcclCall,
        _stream: RawStream,
    ) -> CallResult<()> {
        no_library::<B, _>("nccl_call")
    }

    unsafe fn nccl_register(
        &self,
        _nccl: RawNccl,
        _address: DeviceAddress,
        _bytes: u64,
    ) -> CallResult<u64> {
        no_library::<B, _>("nccl_register")
    }

    unsafe fn nccl_deregister(&self, _nccl: RawNccl, _window: u64) -> CallResult<()> {
        no_library::<B, _>("nccl_deregister")
    }

    unsafe fn nccl_abort(&self, _nccl: RawNccl) -> CallResult<()> {
        no_library::<B, _>("nccl_abort")
    }

    unsafe fn nccl_destroy(&self, _nccl: RawNccl) -> CallResult<()> {
        no_library::<B, _>("nccl_destroy")
    }
}
