//! How a vendor shares memory.

use crate::current::Current;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;

/// How a vendor's runtime makes memory and shares it. Methods are called with the device current.
pub trait Sharing: Current {
    /// Memory that was allocated or taken over.
    type Allocation;
    /// A peer's memory.
    type Mapping;

    /// The ways to share, best first, ended by 0.
    fn kinds(&self) -> [ShareKind; 4];
    /// Bytes that allocations are rounded up to.
    fn granularity(&self) -> u64;
    /// The device's ordinal.
    fn ordinal(&self) -> u32;

    /// Allocates `bytes`, a multiple of the granularity; also their address. Of any contents.
    fn allocate(
        &self,
        kind: ShareKind,
        content: Content,
        bytes: u64,
    ) -> CallResult<(Self::Allocation, DeviceAddress)>;
    /// Fills memory with zeros. Blocks, and leaves no work on the memory even where it fails.
    fn clear(&self, address: DeviceAddress, bytes: u64) -> CallResult<()>;
    /// Takes over memory of the caller's.
    fn inspect(
        &self,
        kind: ShareKind,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<Self::Allocation>;
    /// Gives memory back; of what was taken over, nothing.
    fn release(&self, allocation: Self::Allocation) -> CallResult<()>;
    /// What a peer needs to map it.
    fn export(&self, allocation: &Self::Allocation) -> CallResult<ExportedHandle>;
    /// Maps a peer's memory; also the address of the object's first byte, to which the offset is not yet
    /// added. Within a process that is the handle's address less the offset.
    fn map(&self, handle: &ExportedHandle) -> CallResult<(Self::Mapping, u64)>;
    /// Unmaps it.
    fn unmap(&self, mapping: Self::Mapping) -> CallResult<()>;
}

/// What memory is for: vendors keep words that peers poll apart from data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes that are ordered by signals.
    Data,
    /// Words and packets that are polled while a peer writes them.
    Signals,
}
