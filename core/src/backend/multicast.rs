//! Multicast objects: one address that reaches the same bytes of every member.

use super::abi::*;
use super::failure::{CallResult, Failure};
use enum_dispatch::enum_dispatch;

/// Creates, shares, joins, binds and maps multicast objects, and undoes it.
///
/// One rank creates an object and exports it. Every rank, the creator included, joins the object with its device,
/// binds memory of its own, and maps it. A device cannot leave an object that it has joined. Binding and mapping may
/// block until every device has joined, forever if one never does; the library bounds these calls and lets the ranks
/// agree between the steps. To undo: unmap, unbind, release; only then may the bound memory be freed.
///
/// If [`Multicast::multicast_support`] is not `HARDWARE`, every other method fails with `UNSUPPORTED` and the reason,
/// and touches nothing.
#[enum_dispatch]
pub trait Multicast {
    /// Returns whether collectives may use multicast addresses. Constant while the instance is open.
    fn multicast_support(&self) -> CallResult<MulticastSupportCode>;
    /// Returns the granularity, in bytes, of offsets and sizes that are bound to an object of `bytes` for `devices`
    /// devices.
    fn multicast_granularity(&self, devices: u32, bytes: u64) -> CallResult<u64>;
    /// Creates an object for `devices` devices of `bytes`, rounded up to the device's granularity. May block.
    fn multicast_create(&self, devices: u32, bytes: u64) -> CallResult<RawMulticast>;
    /// Returns what the other ranks need to import the object, and its size. The caller owns the descriptor in the
    /// result.
    ///
    /// # Safety
    /// `multicast` is live.
    unsafe fn multicast_export(&self, multicast: RawMulticast) -> CallResult<ExportedHandle>;
    /// Imports another rank's object. The caller keeps the descriptor in `handle`. May block.
    ///
    /// # Safety
    /// `handle` came from a peer's [`Multicast::multicast_export`], and its object is live.
    unsafe fn multicast_import(&self, handle: &ExportedHandle) -> CallResult<RawMulticast>;
    /// Adds this device to the object, for the life of the object. May block.
    ///
    /// # Safety
    /// `multicast` is live, and this device has not joined it.
    unsafe fn multicast_join(&self, multicast: RawMulticast) -> CallResult<()>;
    /// Binds the first `bytes` of an allocation at `offset`. May block until every device has joined.
    ///
    /// # Safety
    /// Both are live, this device has joined, and has nothing bound in that range.
    unsafe fn multicast_bind(
        &self,
        multicast: RawMulticast,
        offset: u64,
        allocation: RawAllocation,
        bytes: u64,
    ) -> CallResult<()>;
    /// Maps the whole object. Only multicast kernels may use the address, and only ranges in which every member has
    /// bound memory. May block until every device has joined.
    ///
    /// # Safety
    /// `multicast` is live, this device has joined, and it is not mapped here.
    unsafe fn multicast_map(&self, multicast: RawMulticast) -> CallResult<DeviceAddress>;
    /// Unmaps the object. May block until the device is idle.
    ///
    /// # Safety
    /// `multicast` is mapped here, and no work here uses it.
    unsafe fn multicast_unmap(&self, multicast: RawMulticast) -> CallResult<()>;
    /// Unbinds `bytes` at `offset`, as they were bound. May block.
    ///
    /// # Safety
    /// The range is bound, and no work of any member uses that part of the object.
    unsafe fn multicast_unbind(
        &self,
        multicast: RawMulticast,
        offset: u64,
        bytes: u64,
    ) -> CallResult<()>;
    /// Releases this rank's reference to the object. May block.
    ///
    /// # Safety
    /// `multicast` is live, not mapped here, has no memory of this rank bound, and is not used again.
    unsafe fn multicast_release(&self, multicast: RawMulticast) -> CallResult<()>;
}

/// A backend without multicast objects. It gives the reason, and [`Multicast`] is implemented from that.
pub trait WithoutMulticastObjects {
    /// The reason, and what to use instead.
    const REASON: &'static str;
    /// Returns `NONE` or `EMULATED`.
    fn support(&self) -> MulticastSupportCode;
}

/// Returns the failure of a method that needs multicast objects.
fn no_object<B: WithoutMulticastObjects, T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(Status::UNSUPPORTED, call, B::REASON))
}

impl<B: WithoutMulticastObjects> Multicast for B {
    fn multicast_support(&self) -> CallResult<MulticastSupportCode> {
        Ok(self.support())
    }

    fn multicast_granularity(&self, _devices: u32, _bytes: u64) -> CallResult<u64> {
        no_object::<B, _>("multicast_granularity")
    }

    fn multicast_create(&self, _devices: u32, _bytes: u64) -> CallResult<RawMulticast> {
        no_object::<B, _>("multicast_create")
    }

    unsafe fn multicast_export(&self, _multicast: RawMulticast) -> CallResult<ExportedHandle> {
        no_object::<B, _>("multicast_export")
    }

    unsafe fn multicast_import(&self, _handle: &ExportedHandle) -> CallResult<RawMulticast> {
        no_object::<B, _>("multicast_import")
    }

    unsafe fn multicast_join(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_object::<B, _>("multicast_join")
    }

    unsafe fn multicast_bind(
        &self,
        _multicast: RawMulticast,
        _offset: u64,
        _allocation: RawAllocation,
        _bytes: u64,
    ) -> CallResult<()> {
        no_object::<B, _>("multicast_bind")
    }

    unsafe fn multicast_map(&self, _multicast: RawMulticast) -> CallResult<DeviceAddress> {
        no_object::<B, _>("multicast_map")
    }

    unsafe fn multicast_unmap(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_object::<B, _>("multicast_unmap")
    }

    unsafe fn multicast_unbind(
        &self,
        _multicast: RawMulticast,
        _offset: u64,
        _bytes: u64,
    ) -> CallResult<()> {
        no_object::<B, _>("multicast_unbind")
    }

    unsafe fn multicast_release(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_object::<B, _>("multicast_release")
    }
}
