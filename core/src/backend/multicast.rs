//! Multicast objects: one address behind which the same bytes of every member lie.

use super::abi::*;
use super::failure::{CallResult, Failure};
use enum_dispatch::enum_dispatch;

/// Create, share, join, bind, map, and the way back.
///
/// One rank creates an object and hands it out; every rank, that one too, joins it with its device, binds
/// memory of its own, maps it. Joining cannot be undone. Whatever binds or maps may block until every
/// device has joined, for ever if one never does: core bounds it, and lets ranks agree between steps. The
/// way back is unmap, unbind, release, and only then may bound memory be freed.
///
/// Where [`Multicast::multicast_support`] is not `HARDWARE`, each of the other methods fails as `UNSUPPORTED`
/// with the reason, and touches nothing.
#[enum_dispatch]
pub trait Multicast {
    /// Whether collectives may go through multicast addresses here; the same as long as the instance is
    /// open.
    fn multicast_support(&self) -> CallResult<MulticastSupport>;
    /// Offsets and sizes of what is bound to an object of `bytes` for `devices` are multiples of this many
    /// bytes.
    fn multicast_granularity(&self, devices: u32, bytes: u64) -> CallResult<u64>;
    /// Creates an object for `devices`, of `bytes` rounded up to what suits the device. May block.
    fn multicast_create(&self, devices: u32, bytes: u64) -> CallResult<RawMulticast>;
    /// What the other ranks need to import it, and its bytes. A descriptor in the result belongs to the
    /// caller.
    ///
    /// # Safety
    /// `multicast` is live.
    unsafe fn multicast_export(&self, multicast: RawMulticast) -> CallResult<ExportedHandle>;
    /// Takes another rank's object. The descriptor in `handle` stays the caller's. May block.
    ///
    /// # Safety
    /// `handle` came from a peer's [`Multicast::multicast_export`], and its object is live.
    unsafe fn multicast_import(&self, handle: &ExportedHandle) -> CallResult<RawMulticast>;
    /// Adds this device, for as long as the object lives. May block.
    ///
    /// # Safety
    /// `multicast` is live, and this device has not joined it.
    unsafe fn multicast_join(&self, multicast: RawMulticast) -> CallResult<()>;
    /// Binds the first `bytes` of an allocation at `offset`. May block until every device has joined.
    ///
    /// # Safety
    /// Both are live, this device has joined, and nothing of it is bound there.
    unsafe fn multicast_bind(
        &self,
        multicast: RawMulticast,
        offset: u64,
        allocation: RawAllocation,
        bytes: u64,
    ) -> CallResult<()>;
    /// Maps the whole object. Only kernels that are made for it may use the address, and only where every
    /// member has bound memory. May block until every device has joined.
    ///
    /// # Safety
    /// `multicast` is live, this device has joined, and it is not mapped here.
    unsafe fn multicast_map(&self, multicast: RawMulticast) -> CallResult<DeviceAddress>;
    /// Unmaps it. May block until the device is idle.
    ///
    /// # Safety
    /// `multicast` is mapped here, and no work here uses it.
    unsafe fn multicast_unmap(&self, multicast: RawMulticast) -> CallResult<()>;
    /// Unbinds what was bound at `offset`, with the same bytes. May block.
    ///
    /// # Safety
    /// It is bound, and no work of any member uses that part of the object.
    unsafe fn multicast_unbind(
        &self,
        multicast: RawMulticast,
        offset: u64,
        bytes: u64,
    ) -> CallResult<()>;
    /// Gives up this rank's reference. May block.
    ///
    /// # Safety
    /// `multicast` is live, not mapped here, has nothing of this rank's bound, and is not used again.
    unsafe fn multicast_release(&self, multicast: RawMulticast) -> CallResult<()>;
}

/// A backend with no multicast objects: all that it says is why. Its [`Multicast`] follows.
pub trait WithoutMulticastObjects {
    /// Why there are none.
    const REASON: &'static str;
    /// `NONE`, or `EMULATED`.
    fn support(&self) -> MulticastSupport;
}

/// What a method fails with where there are no objects.
fn no_object<B: WithoutMulticastObjects, T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(Status::UNSUPPORTED, call, B::REASON))
}

impl<B: WithoutMulticastObjects> Multicast for B {
    fn multicast_support(&self) -> CallResult<MulticastSupport> {
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
