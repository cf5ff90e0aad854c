//! Memory that peers can address.
//!
//! Three ways to share, best first: memory made by virtual-memory management and handed over as a
//! file descriptor; `cuMemAlloc`'s memory and its 64-byte inter-process handle; and, between ranks of
//! one process, the plain address under peer access. What an instance holds is kept in two lists, so
//! that closing it gives back whatever was not given up. Giving back does every step it can, whatever
//! became of the others, and never a step twice: a call that frees also reports what failed before
//! it, so its failure does not mean that nothing was freed. The lists' lock is taken by allocation and mapping
//! only, never by a transfer.

mod legacy;
mod register;
mod vmm;

use crate::context::Context;
use crate::describe;
use crate::driver::constants::device_attribute::*;
use crate::driver::{Driver, call};
use crate::instance::CudaBackend;
use cudarc::driver::sys::CUdevice;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, SymmetricMemory};

use legacy::{OpenedHandle, PlainMemory};
use register::Registration;
use vmm::VmmMemory;

/// `cuMemAlloc` cuts smaller requests out of a block of this size, and an inter-process handle opens
/// the whole block: whole blocks share nothing with strangers.
const ALLOCATION_BLOCK_BYTES: u64 = 2 << 20;

/// What an instance allocated or took over.
enum Allocation {
    Vmm(VmmMemory),
    Plain(PlainMemory),
    Registered(Registration),
}

/// What an instance mapped of its peers.
enum Mapping {
    Vmm(VmmMemory),
    Legacy(OpenedHandle),
    /// The peer's context is held so that its memory stays addressable.
    SameProcess(Context),
}

/// The allocations and mappings of one instance.
pub(crate) struct Memory {
    driver: &'static Driver,
    context: Arc<Context>,
    next: AtomicU64,
    allocations: Mutex<HashMap<u64, Allocation>>,
    mappings: Mutex<HashMap<u64, Mapping>>,
}

/// The ways to share that a device and driver allow, best first.
pub(crate) fn share_kinds(driver: &Driver, device: CUdevice) -> CallResult<[ShareKind; 4]> {
    let has = |attribute| Ok(describe::attribute(driver, device, attribute)? != 0);
    let vmm = has(VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)?
        && has(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
    let (legacy, same) = (ShareKind::LEGACY_IPC, ShareKind::SAME_PROCESS);
    let none = ShareKind::default();
    Ok(if vmm {
        [ShareKind::VMM_FILE_DESCRIPTOR, legacy, same, none]
    } else {
        [legacy, same, none, none]
    })
}

/// Bytes that an allocation of any kind is rounded up to.
pub(crate) fn granularity(driver: &Driver, device: CUdevice) -> CallResult<u64> {
    let vmm = share_kinds(driver, device)?.contains(&ShareKind::VMM_FILE_DESCRIPTOR);
    let recommended = if vmm {
        vmm::granularity(driver, device)?
    } else {
        0
    };
    Ok(recommended.max(ALLOCATION_BLOCK_BYTES))
}

/// Rounds up, or says that no device has as much.
fn round_up(bytes: u64, granularity: u64) -> CallResult<u64> {
    bytes
        .max(1)
        .checked_next_multiple_of(granularity)
        .filter(|&rounded| rounded <= isize::MAX as u64)
        .ok_or_else(|| {
            Failure::new(
                Status::OUT_OF_MEMORY,
                "allocate",
                format!("no device has {bytes} bytes; ask for less"),
            )
        })
}

impl Memory {
    pub(crate) fn new(driver: &'static Driver, context: Arc<Context>) -> Self {
        Self {
            driver,
            context,
            next: AtomicU64::new(1),
            allocations: Mutex::default(),
            mappings: Mutex::default(),
        }
    }

    fn keep<T>(&self, list: &Mutex<HashMap<u64, T>>, item: T) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        lock(list).insert(handle, item);
        handle
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Nobody is left to tell of failures, and each item is tried whatever became of the others.
        let _entered = self.context.enter();
        for (_, mapping) in lock(&self.mappings).drain() {
            let _ = mapping.release(self.driver);
        }
        for (_, allocation) in lock(&self.allocations).drain() {
            let _ = allocation.release(self.driver);
        }
    }
}

/// A panic while the lock was held left a list of handles, each of them whole.
fn lock<T>(list: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocation {
    /// Gives the memory back. Context current.
    fn release(self, driver: &Driver) -> CallResult<()> {
        match self {
            Self::Vmm(memory) => memory.release(driver),
            Self::Plain(memory) => memory.release(driver),
            Self::Registered(_) => Ok(()),
        }
    }
}

impl Mapping {
    /// Unmaps. Context current.
    fn release(self, driver: &Driver) -> CallResult<()> {
        match self {
            Self::Vmm(memory) => memory.release(driver),
            Self::Legacy(handle) => handle.release(driver),
            Self::SameProcess(peer) => peer.release(),
        }
    }
}

impl SymmetricMemory for CudaBackend {
    fn allocate(&self, kind: ShareKind, bytes: u64) -> CallResult<SharedAllocation> {
        self.check_kind(kind, "allocate")?;
        let bytes = round_up(bytes, self.capabilities.share_granularity)?;
        let _entered = self.enter()?;
        let driver = self.driver;
        let (allocation, address) = if kind == ShareKind::VMM_FILE_DESCRIPTOR {
            let memory = VmmMemory::allocate(driver, self.context.device(), bytes)?;
            let address = memory.address();
            (Allocation::Vmm(memory), address)
        } else {
            let memory = PlainMemory::allocate(driver, kind, bytes)?;
            let address = memory.address();
            (Allocation::Plain(memory), address)
        };
        if let Err(failure) = self.clear(address, bytes) {
            // The first failure is the one to tell.
            let _ = allocation.release(driver);
            return Err(failure);
        }
        Ok(SharedAllocation {
            handle: RawAllocation(self.memory.keep(&self.memory.allocations, allocation)),
            address: DeviceAddress(address),
            bytes,
        })
    }

    unsafe fn register(
        &self,
        kind: ShareKind,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        self.check_kind(kind, "register")?;
        let _entered = self.enter()?;
        let registration =
            Registration::inspect(self.driver, self.context.device(), kind, address.0, bytes)?;
        let allocation = Allocation::Registered(registration);
        Ok(SharedAllocation {
            handle: RawAllocation(self.memory.keep(&self.memory.allocations, allocation)),
            address,
            bytes,
        })
    }

    unsafe fn free(&self, allocation: RawAllocation) -> CallResult<()> {
        let found = lock(&self.memory.allocations).remove(&allocation.0);
        match found {
            Some(found) => self.give_back(|| found.release(self.driver)),
            None => Err(unknown("free", "allocation", allocation.0)),
        }
    }

    unsafe fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle> {
        let _entered = self.enter()?;
        let allocations = lock(&self.memory.allocations);
        let Some(found) = allocations.get(&allocation.0) else {
            return Err(unknown("export", "allocation", allocation.0));
        };
        let ordinal = self.description.ordinal;
        match found {
            Allocation::Vmm(memory) => memory.export(self.driver, ordinal),
            Allocation::Plain(memory) => memory.export(self.driver, ordinal),
            Allocation::Registered(memory) => memory.export(self.driver, ordinal),
        }
    }

    unsafe fn import(&self, handle: &ExportedHandle) -> CallResult<SharedMapping> {
        self.check_kind(handle.kind, "import")?;
        if handle.offset >= handle.bytes {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "import",
                format!(
                    "the peer's handle points {} bytes into an object of {}",
                    handle.offset, handle.bytes
                ),
            ));
        }
        let _entered = self.enter()?;
        let (mapping, address) = match handle.kind {
            ShareKind::VMM_FILE_DESCRIPTOR => {
                let memory = VmmMemory::import(self.driver, self.context.device(), handle)?;
                let address = memory.address() + handle.offset;
                (Mapping::Vmm(memory), address)
            }
            ShareKind::LEGACY_IPC => {
                let opened = OpenedHandle::open(self.driver, handle)?;
                let address = opened.address() + handle.offset;
                (Mapping::Legacy(opened), address)
            }
            _ => (
                Mapping::SameProcess(self.reach(handle.device)?),
                handle.address,
            ),
        };
        Ok(SharedMapping {
            handle: RawMapping(self.memory.keep(&self.memory.mappings, mapping)),
            address: DeviceAddress(address),
        })
    }

    unsafe fn unmap(&self, mapping: RawMapping) -> CallResult<()> {
        let found = lock(&self.memory.mappings).remove(&mapping.0);
        match found {
            Some(found) => self.give_back(|| found.release(self.driver)),
            None => Err(unknown("unmap", "mapping", mapping.0)),
        }
    }
}

impl CudaBackend {
    fn check_kind(&self, kind: ShareKind, call: &str) -> CallResult<()> {
        let known = kind != ShareKind::default() && self.capabilities.share_kinds.contains(&kind);
        if known {
            return Ok(());
        }
        Err(Failure::new(
            Status::UNSUPPORTED,
            call,
            format!(
                "device {} cannot share memory by {}; choose a kind that it lists",
                self.description.ordinal,
                kind.name()
            ),
        ))
    }

    /// Fills new memory with zeros, so that no rank sees what a stranger left. Blocks.
    fn clear(&self, address: u64, bytes: u64) -> CallResult<()> {
        let (driver, stream) = (self.driver, self.setup.raw);
        // SAFETY: the range was allocated just now and nobody else has it; the stream is this
        // instance's own.
        unsafe {
            call!(driver, cuMemsetD8Async(address, 0, bytes as usize, stream))?;
            call!(driver, cuStreamSynchronize(stream)).inspect_err(|_| {
                // The memory is given back next and must not be in use then. After an error of the
                // device this one returns at once.
                (driver.table.cuStreamSynchronize)(stream);
            })
        }
    }

    /// Lets this device address what a device of the same process allocated.
    ///
    /// The peer's context is retained first: enabling peer access fails while the peer's device has
    /// no context in this process (seen on H200, driver 580).
    fn reach(&self, ordinal: u32) -> CallResult<Context> {
        let peer = Context::retain(self.driver, describe::device(self.driver, ordinal)?)?;
        self.context.enable_peer_access(&peer)?;
        Ok(peer)
    }
}

fn unknown(call: &str, what: &str, handle: u64) -> Failure {
    Failure::new(
        Status::INVALID_ARGUMENT,
        call,
        format!("{what} {handle} is not live in this instance: it was given up, or is another's"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_to_whole_blocks_and_absurd_ones_are_refused() {
        let block = ALLOCATION_BLOCK_BYTES;
        assert_eq!(round_up(0, block).unwrap(), block);
        assert_eq!(round_up(block, block).unwrap(), block);
        assert_eq!(round_up(block + 1, block).unwrap(), 2 * block);
        for bytes in [u64::MAX, i64::MAX as u64] {
            let failure = round_up(bytes, block).unwrap_err();
            assert_eq!(failure.status, Status::OUT_OF_MEMORY);
            assert!(failure.message.contains(&bytes.to_string()));
        }
    }
}
