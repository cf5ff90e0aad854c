//! The trait with which a vendor allocates and shares memory.

use crate::current::Current;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;

/// A vendor's ways to allocate and share memory. All methods are called with the device current.
pub trait Sharing: Current {
    /// Memory that was allocated or registered.
    type Allocation;
    /// A peer's memory, mapped here.
    type Mapping;

    /// Returns the share kinds, best first, ended by 0.
    fn kinds(&self) -> [ShareKindCode; 4];
    /// Returns the allocation granularity in bytes.
    fn granularity(&self) -> u64;
    /// Returns the device's ordinal.
    fn ordinal(&self) -> u32;

    /// Allocates `bytes` bytes, a multiple of the granularity, and returns the allocation with its address. The
    /// contents are undefined.
    fn allocate(
        &self,
        kind: ShareKindCode,
        content: Content,
        bytes: u64,
    ) -> CallResult<(Self::Allocation, DeviceAddress)>;
    /// Fills memory with zeros. Blocks until done, and leaves no work on the memory behind even if it fails.
    fn clear(&self, address: DeviceAddress, bytes: u64) -> CallResult<()>;
    /// Checks memory that the caller allocated, and makes it an allocation that can be exported.
    fn inspect(
        &self,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<Self::Allocation>;
    /// Frees an allocation. Leaves registered memory as it is.
    fn release(&self, allocation: Self::Allocation) -> CallResult<()>;
    /// Returns the handle with which a peer maps the allocation.
    fn export(&self, allocation: &Self::Allocation) -> CallResult<ExportedHandle>;
    /// Maps a peer's memory. Also returns the address of the object's first byte, without the handle's offset;
    /// in the process that exported it, that is the handle's address minus its offset.
    fn map(&self, handle: &ExportedHandle) -> CallResult<(Self::Mapping, u64)>;
    /// Unmaps a peer's memory.
    fn unmap(&self, mapping: Self::Mapping) -> CallResult<()>;
}

/// Use of memory: some vendors place words that peers poll in another kind of memory than data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data, whose readers are ordered by signals.
    Data,
    /// Words and LL packets that one rank polls while a peer writes them.
    Signals,
}
