//! Multicast: AMD's links have no switch that could reduce or hand out.

use crate::instance::HipBackend;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, Multicast};

fn no_multicast<T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "AMD's GPUs have no multicast",
    ))
}

impl Multicast for HipBackend {
    fn multicast_support(&self) -> CallResult<MulticastSupport> {
        Ok(MulticastSupport::NONE)
    }

    fn multicast_granularity(&self, _devices: u32, _bytes: u64) -> CallResult<u64> {
        no_multicast("multicast_granularity")
    }

    fn multicast_create(&self, _devices: u32, _bytes: u64) -> CallResult<RawMulticast> {
        no_multicast("multicast_create")
    }

    unsafe fn multicast_export(&self, _multicast: RawMulticast) -> CallResult<ExportedHandle> {
        no_multicast("multicast_export")
    }

    unsafe fn multicast_import(&self, _handle: &ExportedHandle) -> CallResult<RawMulticast> {
        no_multicast("multicast_import")
    }

    unsafe fn multicast_join(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_multicast("multicast_join")
    }

    unsafe fn multicast_bind(
        &self,
        _multicast: RawMulticast,
        _offset: u64,
        _allocation: RawAllocation,
        _bytes: u64,
    ) -> CallResult<()> {
        no_multicast("multicast_bind")
    }

    unsafe fn multicast_map(&self, _multicast: RawMulticast) -> CallResult<DeviceAddress> {
        no_multicast("multicast_map")
    }

    unsafe fn multicast_unmap(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_multicast("multicast_unmap")
    }

    unsafe fn multicast_unbind(
        &self,
        _multicast: RawMulticast,
        _offset: u64,
        _bytes: u64,
    ) -> CallResult<()> {
        no_multicast("multicast_unbind")
    }

    unsafe fn multicast_release(&self, _multicast: RawMulticast) -> CallResult<()> {
        no_multicast("multicast_release")
    }
}
