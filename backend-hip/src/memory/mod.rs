//! Allocates and shares memory that peers can address.
//!
//! Share kinds, best first: `hipMalloc` memory with its 64-byte inter-process handle; virtual memory management
//! with file descriptors (dma-bufs); between ranks of one process, the plain address under peer access; and `hipMalloc`
//! memory by the dma-buf of its address range (`range`).
//! Data lies in ordinary memory, ordered by releases and acquires of system scope. Words that are polled lie in
//! uncached memory, so that no cache delays them.

mod plain;
mod range;
mod register;
pub mod vmm;

use crate::current::{ContextGuard, Ordinal};
use crate::runtime::constants::STREAM_NON_BLOCKING;
use crate::runtime::hip;
use crate::runtime::table::Stream;
use plain::{Opened, PlainMemory};
use range::Imported;
use register::Registration;
pub use register::place;
use std::ptr::null_mut;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::memory::{Content, Span, whole_blocks};
use symmem_gpu::{Current, Sharing};
use symmem_kernels_hip::Target;
use vmm::{VirtualMemoryManagement, VmmMemory};

/// Block size in bytes: the runtime cuts smaller requests out of such a block, and an inter-process handle
/// opens all of it, so only whole blocks expose no other data. Odd sizes have failed to open (ROCm/HIP 2257).
const BLOCK_BYTES: u64 = 2 << 20;

/// An allocation of this device, or registered memory.
pub enum Allocation {
    Plain(PlainMemory),
    Vmm(VmmMemory),
    Registered(Registration),
}

/// A mapping of a peer's memory.
pub enum Mapping {
    Opened(Opened),
    Vmm(VmmMemory),
    Imported(Imported),
    /// Peer access stays enabled, so there is nothing to undo.
    SameProcess,
}

/// The device's memory operations.
pub struct HipSharing {
    device: Ordinal,
    vmm: Option<VirtualMemoryManagement>,
    granularity: u64,
    /// For clearing new memory; not ordered with other streams.
    stream: Stream,
}

// SAFETY: the runtime accepts a stream's handle on any thread.
unsafe impl Send for HipSharing {}
// SAFETY: as for `Send`.
unsafe impl Sync for HipSharing {}

impl HipSharing {
    pub fn new(device: Ordinal, target: Target) -> CallResult<Self> {
        let _entered = device.enter()?;
        let vmm = VirtualMemoryManagement::of(device, target)?;
        let granularity = match &vmm {
            Some(vmm) => whole_blocks(vmm::GRANULARITY, vmm.granularity()?, BLOCK_BYTES)?,
            None => BLOCK_BYTES,
        };
        let (runtime, mut stream) = (device.runtime, null_mut());
        let place = &raw mut stream;
        // SAFETY: the device is current, and the out-pointer is writable.
        unsafe {
            hip!(
                runtime,
                hipStreamCreateWithFlags(place, STREAM_NON_BLOCKING)
            )
        }?;
        Ok(Self {
            device,
            vmm,
            granularity,
            stream,
        })
    }

    /// Callers use this only for a kind that [`Sharing::kinds`] lists, so it normally succeeds.
    fn vmm(&self) -> CallResult<&VirtualMemoryManagement> {
        self.vmm.as_ref().ok_or_else(vmm::unsupported)
    }
}

impl Drop for HipSharing {
    fn drop(&mut self) {
        let _entered = self.enter();
        // SAFETY: `new` created this stream, and only this destroys it. A failure cannot be reported.
        unsafe { (self.device.runtime.table.hipStreamDestroy)(self.stream) };
    }
}

impl Current for HipSharing {
    type ContextGuard<'a> = ContextGuard;

    fn enter(&self) -> CallResult<ContextGuard> {
        self.device.enter()
    }
}

impl Sharing for HipSharing {
    type Allocation = Allocation;
    type Mapping = Mapping;

    fn kinds(&self) -> [ShareKindCode; 4] {
        let vmm = self.vmm.as_ref().is_some_and(|vmm| vmm.shares());
        let offered = [
            (ShareKindCode::LEGACY_IPC, true),
            (ShareKindCode::VMM_FILE_DESCRIPTOR, vmm),
            (ShareKindCode::SAME_PROCESS, true),
            (
                ShareKindCode::ADDRESS_RANGE,
                range::is_offered(self.device.runtime),
            ),
        ];
        let mut kinds = [ShareKindCode(0); 4];
        let offered = offered.into_iter().filter(|(_, offered)| *offered);
        for (place, (kind, _)) in kinds.iter_mut().zip(offered) {
            *place = kind;
        }
        kinds
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn ordinal(&self) -> u32 {
        self.device.number
    }

    fn allocate(
        &self,
        kind: ShareKindCode,
        content: Content,
        bytes: u64,
    ) -> CallResult<(Allocation, DeviceAddress)> {
        let (allocation, address) = match kind {
            ShareKindCode::VMM_FILE_DESCRIPTOR => {
                let memory = self.vmm()?.allocate(content, bytes)?;
                let address = memory.address;
                (Allocation::Vmm(memory), address)
            }
            _ => {
                let memory = PlainMemory::allocate(self.device.runtime, kind, content, bytes)?;
                let address = memory.span.base;
                (Allocation::Plain(memory), address)
            }
        };
        Ok((allocation, DeviceAddress(address)))
    }

    fn clear(&self, address: DeviceAddress, bytes: u64) -> CallResult<()> {
        let (runtime, stream, bytes) = (self.device.runtime, self.stream, bytes as usize);
        // SAFETY: nobody else has the range yet, and the stream belongs to this object.
        unsafe { hip!(runtime, hipMemsetD8Async(address.0, 0, bytes, stream)) }?;
        // SAFETY: as above. Waits again after a failure, because the caller frees the memory next; after a
        // device error the second wait returns at once.
        unsafe {
            hip!(runtime, hipStreamSynchronize(stream)).inspect_err(|_| {
                (runtime.table.hipStreamSynchronize)(stream);
            })
        }
    }

    fn inspect(
        &self,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<Allocation> {
        let vmm = self.vmm.as_ref();
        Registration::inspect(self.device, vmm, kind, address, bytes).map(Allocation::Registered)
    }

    fn release(&self, allocation: Allocation) -> CallResult<()> {
        match allocation {
            Allocation::Plain(memory) => memory.release(self.device.runtime),
            Allocation::Vmm(memory) => memory.release(self.vmm()?),
            Allocation::Registered(_) => Ok(()),
        }
    }

    fn export(&self, allocation: &Allocation) -> CallResult<ExportedHandle> {
        match allocation {
            Allocation::Plain(memory) => plain::export(self.device, memory.kind, &memory.span),
            Allocation::Vmm(memory) => {
                let span = Span {
                    base: memory.address,
                    bytes: memory.bytes,
                    offset: 0,
                };
                self.vmm()?.export(memory.physical, &span)
            }
            Allocation::Registered(memory) => memory.export(self.device, self.vmm.as_ref()),
        }
    }

    fn map(&self, handle: &ExportedHandle) -> CallResult<(Mapping, u64)> {
        Ok(match handle.kind {
            ShareKindCode::LEGACY_IPC => {
                let opened = Opened::open(self.device.runtime, handle)?;
                let base = opened.address();
                (Mapping::Opened(opened), base)
            }
            ShareKindCode::VMM_FILE_DESCRIPTOR => {
                let memory = self.vmm()?.import(handle)?;
                let base = memory.address;
                (Mapping::Vmm(memory), base)
            }
            ShareKindCode::ADDRESS_RANGE => {
                let imported = Imported::import(self.device.runtime, handle)?;
                let base = imported.address();
                (Mapping::Imported(imported), base)
            }
            _ => {
                self.device.enable_peer_access(handle.device)?;
                (Mapping::SameProcess, handle.address - handle.offset)
            }
        })
    }

    fn unmap(&self, mapping: Mapping) -> CallResult<()> {
        match mapping {
            Mapping::Opened(opened) => opened.close(self.device.runtime),
            Mapping::Vmm(memory) => memory.release(self.vmm()?),
            Mapping::Imported(imported) => imported.release(self.device.runtime),
            Mapping::SameProcess => Ok(()),
        }
    }
}
