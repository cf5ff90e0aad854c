//! Memory that peers can address.
//!
//! Three share kinds, best first: virtual memory management with file descriptors; `cuMemAlloc` memory with its
//! 64-byte inter-process handle; and, between ranks of one process, the plain address under peer access. Words that
//! peers poll lie in the same kind of memory as data, since NVIDIA's caches do not hold system-scope accesses back.

mod legacy;
mod register;
pub(crate) mod vmm;

use crate::context::{Context, ContextGuard};
use crate::describe;
use crate::driver::constants::STREAM_NON_BLOCKING;
use crate::driver::constants::device_attribute::*;
use crate::driver::{Driver, call};
use cudarc::driver::sys::CUstream;
use std::ptr::null_mut;
use std::sync::Arc;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::memory::{Content, whole_blocks};
use symmem_gpu::{Current, Sharing};

use legacy::{OpenedHandle, PlainMemory};
use register::Registration;
pub use register::place;
use vmm::VmmMemory;

/// `cuMemAlloc` cuts smaller requests out of a block of this many bytes, and an inter-process handle opens the
/// whole block. Allocations of whole blocks therefore expose no other data.
const ALLOCATION_BLOCK_BYTES: u64 = 2 << 20;

/// Memory that this device allocated or registered.
pub enum Allocation {
    Vmm(VmmMemory),
    Plain(PlainMemory),
    Registered(Registration),
}

/// Memory of a peer that this device mapped.
pub enum Mapping {
    Vmm(VmmMemory),
    Legacy(OpenedHandle),
    /// Keeps the peer device's context, so that its memory stays addressable.
    SameProcess(Context),
}

/// Allocates and shares a device's memory.
pub struct CudaSharing {
    driver: &'static Driver,
    context: Arc<Context>,
    ordinal: u32,
    kinds: [ShareKindCode; 4],
    granularity: u64,
    /// Clears new memory; ordered with no other stream.
    stream: CUstream,
}

// SAFETY: a stream is a handle that the driver accepts on any thread.
unsafe impl Send for CudaSharing {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaSharing {}

impl CudaSharing {
    pub(crate) fn new(
        driver: &'static Driver,
        context: Arc<Context>,
        ordinal: u32,
    ) -> CallResult<Self> {
        let device = context.device();
        let has = |attribute| Ok(describe::attribute(driver, device, attribute)? != 0);
        let vmm = has(VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)?
            && has(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
        let (legacy, same) = (ShareKindCode::LEGACY_IPC, ShareKindCode::SAME_PROCESS);
        let none = ShareKindCode::default();
        let (kinds, granularity) = if vmm {
            let kinds = [ShareKindCode::VMM_FILE_DESCRIPTOR, legacy, same, none];
            let reported = vmm::granularity(driver, device)?;
            (
                kinds,
                whole_blocks(vmm::GRANULARITY, reported, ALLOCATION_BLOCK_BYTES)?,
            )
        } else {
            ([legacy, same, none, none], ALLOCATION_BLOCK_BYTES)
        };
        let mut stream = null_mut();
        {
            let _entered = context.enter()?;
            // SAFETY: the out-pointer is writable, and the context is current.
            unsafe { call!(driver, cuStreamCreate(&raw mut stream, STREAM_NON_BLOCKING)) }?;
        }
        Ok(Self {
            driver,
            context,
            ordinal,
            kinds,
            granularity,
            stream,
        })
    }

    /// Gives this device access to memory of another device in the same process.
    ///
    /// Retains the peer's context first: enabling peer access fails while the peer's device has no context in
    /// this process (seen on H200, driver 580).
    fn reach(&self, ordinal: u32) -> CallResult<Context> {
        let peer = Context::retain(self.driver, describe::device(self.driver, ordinal)?)?;
        self.context.enable_peer_access(&peer)?;
        Ok(peer)
    }
}

impl Drop for CudaSharing {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: `new` created the stream and only this destroys it. Nobody is left to report a failure to.
        unsafe { (self.driver.table.cuStreamDestroy_v2)(self.stream) };
    }
}

impl Current for CudaSharing {
    type ContextGuard<'a> = ContextGuard<'a>;

    fn enter(&self) -> CallResult<ContextGuard<'_>> {
        self.context.enter()
    }
}

impl Sharing for CudaSharing {
    type Allocation = Allocation;
    type Mapping = Mapping;

    fn kinds(&self) -> [ShareKindCode; 4] {
        self.kinds
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn ordinal(&self) -> u32 {
        self.ordinal
    }

    fn allocate(
        &self,
        kind: ShareKindCode,
        _content: Content,
        bytes: u64,
    ) -> CallResult<(Allocation, DeviceAddress)> {
        if kind == ShareKindCode::VMM_FILE_DESCRIPTOR {
            let memory = vmm::allocate(self.driver, self.context.device(), bytes)?;
            let address = DeviceAddress(memory.address);
            return Ok((Allocation::Vmm(memory), address));
        }
        let memory = PlainMemory::allocate(self.driver, kind, bytes)?;
        let address = DeviceAddress(memory.address());
        Ok((Allocation::Plain(memory), address))
    }

    fn clear(&self, address: DeviceAddress, bytes: u64) -> CallResult<()> {
        let (driver, stream) = (self.driver, self.stream);
        // SAFETY: the range was allocated just now and nobody else has it; the stream is this object's own.
        unsafe {
            call!(
                driver,
                cuMemsetD8Async(address.0, 0, bytes as usize, stream)
            )?;
            call!(driver, cuStreamSynchronize(stream)).inspect_err(|_| {
                // The caller frees the memory next, so it must not be in use. After a device error this returns
                // at once.
                (driver.table.cuStreamSynchronize)(stream);
            })
        }
    }

    fn inspect(
        &self,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<Allocation> {
        let device = self.context.device();
        Registration::inspect(self.driver, device, kind, address, bytes).map(Allocation::Registered)
    }

    fn release(&self, allocation: Allocation) -> CallResult<()> {
        match allocation {
            Allocation::Vmm(memory) => memory.release(&self.vmm()),
            Allocation::Plain(memory) => memory.release(self.driver),
            Allocation::Registered(_) => Ok(()),
        }
    }

    fn export(&self, allocation: &Allocation) -> CallResult<ExportedHandle> {
        match allocation {
            Allocation::Vmm(memory) => vmm::export(self.driver, memory, self.ordinal),
            Allocation::Plain(memory) => memory.export(self.driver, self.ordinal),
            Allocation::Registered(memory) => memory.export(self.driver, self.ordinal),
        }
    }

    fn map(&self, handle: &ExportedHandle) -> CallResult<(Mapping, u64)> {
        Ok(match handle.kind {
            ShareKindCode::VMM_FILE_DESCRIPTOR => {
                let memory = vmm::import(self.driver, self.context.device(), handle)?;
                let base = memory.address;
                (Mapping::Vmm(memory), base)
            }
            ShareKindCode::LEGACY_IPC => {
                let opened = OpenedHandle::open(self.driver, handle)?;
                let base = opened.address();
                (Mapping::Legacy(opened), base)
            }
            _ => {
                let peer = self.reach(handle.device)?;
                (Mapping::SameProcess(peer), handle.address - handle.offset)
            }
        })
    }

    fn unmap(&self, mapping: Mapping) -> CallResult<()> {
        match mapping {
            Mapping::Vmm(memory) => memory.release(&self.vmm()),
            Mapping::Legacy(handle) => handle.release(self.driver),
            Mapping::SameProcess(peer) => peer.release(),
        }
    }
}

impl CudaSharing {
    fn vmm(&self) -> vmm::Runtime<'_> {
        vmm::Runtime {
            driver: self.driver,
            device: self.context.device(),
        }
    }
}
