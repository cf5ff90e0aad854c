//! Multicast on the host: no objects, since a processor has no address behind which several memories lie.
//! Its collectives can go by the peers' own addresses as if there were one, for those who ask for that.

use super::HostBackend;
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure, Multicast};

/// Whether the environment asks for multicast collectives without a switch.
pub(super) fn support() -> MulticastSupport {
    match std::env::var("SYMMEM_MULTICAST") {
        Ok(text) if text.trim().eq_ignore_ascii_case("emulate") => MulticastSupport::EMULATED,
        _ => MulticastSupport::NONE,
    }
}

fn no_object<T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "a processor has no multicast addresses; SYMMEM_MULTICAST=emulate has its collectives without them",
    ))
}

impl Multicast for HostBackend {
    fn multicast_support(&self) -> CallResult<MulticastSupport> {
        Ok(self.multicast)
    }

    fn multicast_granularity(&self, _devices: u32, _bytes: u64) -> CallResult<u64> {
        no_object("multicast_granularity")
    }

    fn multicast_create(&self, _devices: u32, _bytes: u64) -> CallResult<RawMulticast> {
        no_object("multicast_create")
    }

    unsafe fn multicast_export(&self, _multicast: RawMulticast) -> CallResult<ExportedHandle> {
        no_object("multicast_export")
    }

    unsafe fn multicast_import(&self, _handle: &ExportedHandle) -> CallResult<RawMulticast> {
        no_object("multicast_import")
    }

    unsafe fn multicast_join(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_object("multicast_join")
    }

    unsafe fn multicast_bind(
        &self,
        _multicast: RawMulticast,
        _offset: u64,
        _allocation: RawAllocation,
        _bytes: u64,
    ) -> CallResult<()> {
        no_object("multicast_bind")
    }

    unsafe fn multicast_map(&self, _multicast: RawMulticast) -> CallResult<DeviceAddress> {
        no_object("multicast_map")
    }

    unsafe fn multicast_unmap(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_object("multicast_unmap")
    }

    unsafe fn multicast_unbind(
        &self,
        _multicast: RawMulticast,
        _offset: u64,
        _bytes: u64,
    ) -> CallResult<()> {
        no_object("multicast_unbind")
    }

    unsafe fn multicast_release(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_object("multicast_release")
    }
}
