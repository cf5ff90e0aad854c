//! Memory that peers can address.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Allocate, export, import, map, unmap and free. Every rank agrees on the kind first: core does.
#[enum_dispatch]
pub trait SymmetricMemory {
    /// Allocates `bytes` (rounded up to the granularity) that can be shared by `kind`. May block.
    fn allocate(&self, kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation>;
    /// As [`SymmetricMemory::allocate`], for words and packets that are polled while a peer writes them:
    /// memory that a vendor's caches do not hold back from the one who polls. May block.
    fn allocate_signals(&self, kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation>;
    /// Takes memory that the caller owns under the contract, if its kind can be shared; else
    /// `UNSUPPORTED` with the reason. [`SymmetricMemory::free`] then leaves the memory alone.
    ///
    /// # Safety
    /// `bytes` at `address` stay allocated until the handle is freed.
    unsafe fn register(
        &self,
        kind: ShareKind,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<SharedAllocation>;
    /// Frees an allocation, or forgets a registration. May block until the device is idle.
    ///
    /// # Safety
    /// `allocation` is live, no work here or at a peer uses it, and it is not used again.
    unsafe fn free(&self, allocation: RawAllocation) -> CallResult<()>;
    /// What peers need to map it. A descriptor in the result belongs to the caller.
    ///
    /// # Safety
    /// `allocation` is live.
    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle>;
    /// Maps a peer's memory. The descriptor in `handle` stays the caller's. May block.
    ///
    /// # Safety
    /// `handle` came from a peer's [`SymmetricMemory::export`], and its allocation is live.
    unsafe fn import(&self, handle: &ExportedHandle) -> CallResult<SharedMapping>;
    /// Unmaps a peer's memory. May block until the device is idle.
    ///
    /// # Safety
    /// `mapping` is live, no work here uses it, and it is not used again.
    unsafe fn unmap(&self, mapping: RawMapping) -> CallResult<()>;
}
