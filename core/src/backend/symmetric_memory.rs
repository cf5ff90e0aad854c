//! Memory that peers can address.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Allocates, exports, imports and frees symmetric memory. The library makes all ranks agree on the kind first.
#[enum_dispatch]
pub trait SymmetricMemory {
    /// Allocates `bytes`, rounded up to the granularity, that can be shared by `kind`. May block.
    fn allocate(&self, kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation>;
    /// Allocates like [`SymmetricMemory::allocate`], but for words and packets that are polled while a peer writes
    /// them: the device's caches do not keep stale copies of this memory. May block.
    fn allocate_signals(&self, kind: ShareKindCode, bytes: u64) -> CallResult<SharedAllocation>;
    /// Registers memory that the caller owns, if this kind can share it; otherwise fails with `UNSUPPORTED` and the
    /// reason. [`SymmetricMemory::free`] then does not free the memory itself.
    ///
    /// # Safety
    /// `bytes` at `address` stay allocated until the handle is freed.
    unsafe fn register(
        &self,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<SharedAllocation>;
    /// Frees an allocation, or ends a registration. May block until the device is idle.
    ///
    /// # Safety
    /// `allocation` is live, no work here or at a peer uses it, and it is not used again.
    unsafe fn free(&self, allocation: RawAllocation) -> CallResult<()>;
    /// Returns what peers need to map the allocation. The caller owns the descriptor in the result.
    ///
    /// # Safety
    /// `allocation` is live.
    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle>;
    /// Maps a peer's memory. The caller keeps the descriptor in `handle`. May block.
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
