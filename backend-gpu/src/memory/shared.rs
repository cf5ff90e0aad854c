//! The allocations and mappings of one open device.
//!
//! They are kept in two lists, so that closing the device releases whatever the caller did not. Releasing tries every
//! step even after a failure, and no step twice: a call that frees also reports earlier asynchronous errors, so its
//! failure does not mean that nothing was freed. Only allocating and mapping take the lists' lock; transfers never do.

use super::sharing::{Content, Sharing};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// The allocations and mappings of one open device.
pub struct SharedMemory<M: Sharing> {
    sharing: M,
    next: AtomicU64,
    allocations: Mutex<HashMap<u64, M::Allocation>>,
    mappings: Mutex<HashMap<u64, M::Mapping>>,
}

impl<M: Sharing> SharedMemory<M> {
    /// Creates empty lists.
    pub fn new(sharing: M) -> Self {
        Self {
            sharing,
            next: AtomicU64::new(1),
            allocations: Mutex::default(),
            mappings: Mutex::default(),
        }
    }

    /// Calls `look` with an allocation, under the list's lock.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the allocation is not live here.
    pub fn with_allocation<T>(
        &self,
        allocation: RawAllocation,
        look: impl FnOnce(&M::Allocation) -> T,
    ) -> CallResult<T> {
        match lock(&self.allocations).get(&allocation.0) {
            Some(found) => Ok(look(found)),
            None => Err(unknown("look up", "allocation", allocation.0)),
        }
    }

    /// Makes the device current.
    pub(crate) fn enter(&self) -> CallResult<M::ContextGuard<'_>> {
        self.sharing.enter()
    }

    fn keep<T>(&self, list: &Mutex<HashMap<u64, T>>, item: T) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        lock(list).insert(handle, item);
        handle
    }

    pub(super) fn allocate(
        &self,
        kind: ShareKindCode,
        content: Content,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        self.check_kind(kind, "allocate")?;
        let bytes = round_up(bytes, self.sharing.granularity())?;
        let _entered = self.sharing.enter()?;
        let (allocation, address) = self.sharing.allocate(kind, content, bytes)?;
        // No rank may see data that another process left in this memory.
        if let Err(failure) = self.sharing.clear(address, bytes) {
            // Report the first failure only.
            let _ = self.sharing.release(allocation);
            return Err(failure);
        }
        Ok(SharedAllocation {
            handle: RawAllocation(self.keep(&self.allocations, allocation)),
            address,
            bytes,
        })
    }

    /// Registers memory that the caller allocated.
    pub(super) fn register(
        &self,
        kind: ShareKindCode,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<SharedAllocation> {
        self.check_kind(kind, "register")?;
        let _entered = self.sharing.enter()?;
        let allocation = self.sharing.inspect(kind, address, bytes)?;
        Ok(SharedAllocation {
            handle: RawAllocation(self.keep(&self.allocations, allocation)),
            address,
            bytes,
        })
    }

    pub(super) fn free(&self, allocation: RawAllocation) -> CallResult<()> {
        let found = lock(&self.allocations).remove(&allocation.0);
        match found {
            Some(found) => self.sharing.give_back(|| self.sharing.release(found)),
            None => Err(unknown("free", "allocation", allocation.0)),
        }
    }

    pub(super) fn export(&self, allocation: RawAllocation) -> CallResult<ExportedHandle> {
        let _entered = self.sharing.enter()?;
        match lock(&self.allocations).get(&allocation.0) {
            Some(found) => self.sharing.export(found),
            None => Err(unknown("export", "allocation", allocation.0)),
        }
    }

    /// Maps a peer's memory. Does not trust any number in the peer's handle.
    pub(super) fn import(&self, handle: &ExportedHandle) -> CallResult<SharedMapping> {
        self.check_kind(handle.kind, "import")?;
        if handle.offset >= handle.bytes || handle.offset > handle.address {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "import",
                format!(
                    "the peer's handle is invalid: it points {} bytes into an object of {} bytes, at {:#x}",
                    handle.offset, handle.bytes, handle.address
                ),
            ));
        }
        let _entered = self.sharing.enter()?;
        let (mapping, base) = self.sharing.map(handle)?;
        let Some(address) = base.checked_add(handle.offset) else {
            // Report the first failure only.
            let _ = self.sharing.unmap(mapping);
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "import",
                format!(
                    "the peer's handle is invalid: it points {} bytes into an object mapped at {base:#x}, \
                     and no address is that large",
                    handle.offset
                ),
            ));
        };
        Ok(SharedMapping {
            handle: RawMapping(self.keep(&self.mappings, mapping)),
            address: DeviceAddress(address),
        })
    }

    pub(super) fn unmap(&self, mapping: RawMapping) -> CallResult<()> {
        let found = lock(&self.mappings).remove(&mapping.0);
        match found {
            Some(found) => self.sharing.give_back(|| self.sharing.unmap(found)),
            None => Err(unknown("unmap", "mapping", mapping.0)),
        }
    }

    fn check_kind(&self, kind: ShareKindCode, call: &str) -> CallResult<()> {
        if kind != ShareKindCode::default() && self.sharing.kinds().contains(&kind) {
            return Ok(());
        }
        Err(Failure::new(
            Status::UNSUPPORTED,
            call,
            format!(
                "device {} cannot share memory by {}; choose one of its share kinds",
                self.sharing.ordinal(),
                kind.name()
            ),
        ))
    }
}

impl<M: Sharing> Drop for SharedMemory<M> {
    fn drop(&mut self) {
        // Nobody is left to report failures to; a failure does not stop the releases after it.
        let _entered = self.sharing.enter();
        for (_, mapping) in lock(&self.mappings).drain() {
            let _ = self.sharing.unmap(mapping);
        }
        for (_, allocation) in lock(&self.allocations).drain() {
            let _ = self.sharing.release(allocation);
        }
    }
}

/// After a panic under the lock the list is still a list of whole handles.
fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the allocation granularity in bytes: a multiple of `block` and of the granularity that the runtime's
/// `call` reported.
///
/// # Errors
/// `CALL_FAILED` if the runtime reported zero, or a number too large to round up to.
pub fn whole_blocks(call: &str, reported: u64, block: u64) -> CallResult<u64> {
    block.checked_next_multiple_of(reported).ok_or_else(|| {
        let reason = format!("the runtime reports an allocation granularity of {reported} bytes");
        Failure::new(Status::CALL_FAILED, call, reason)
    })
}

/// Rounds up to the granularity; `OUT_OF_MEMORY` if no device could have that many bytes.
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

fn unknown(call: &str, what: &str, handle: u64) -> Failure {
    Failure::new(
        Status::INVALID_ARGUMENT,
        call,
        format!(
            "{what} {handle} is not live here: it was released already, or belongs to another device"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::*;
    use crate::current::Current;

    const BLOCK: u64 = 2 << 20;

    /// Maps everything at the same address, and counts the live mappings.
    struct Fixed {
        base: u64,
        mapped: std::cell::Cell<usize>,
    }

    impl Current for Fixed {
        type ContextGuard<'a> = ();
        fn enter(&self) -> CallResult<()> {
            Ok(())
        }
    }

    impl Sharing for Fixed {
        type Allocation = ();
        type Mapping = ();
        fn kinds(&self) -> [ShareKindCode; 4] {
            [ShareKindCode::LEGACY_IPC; 4]
        }
        fn granularity(&self) -> u64 {
            BLOCK
        }
        fn ordinal(&self) -> u32 {
            0
        }
        fn allocate(
            &self,
            _: ShareKindCode,
            _: Content,
            _: u64,
        ) -> CallResult<((), DeviceAddress)> {
            Ok(((), DeviceAddress(self.base)))
        }
        fn clear(&self, _: DeviceAddress, _: u64) -> CallResult<()> {
            Ok(())
        }
        fn inspect(&self, _: ShareKindCode, _: DeviceAddress, _: u64) -> CallResult<()> {
            Ok(())
        }
        fn release(&self, (): ()) -> CallResult<()> {
            Ok(())
        }
        fn export(&self, (): &()) -> CallResult<ExportedHandle> {
            let span = Span::new(DeviceAddress(self.base), BLOCK, self.base, BLOCK)?;
            Ok(span.handle(ShareKindCode::LEGACY_IPC, 0))
        }
        fn map(&self, _: &ExportedHandle) -> CallResult<((), u64)> {
            self.mapped.set(self.mapped.get() + 1);
            Ok(((), self.base))
        }
        fn unmap(&self, (): ()) -> CallResult<()> {
            self.mapped.set(self.mapped.get() - 1);
            Ok(())
        }
    }

    #[test]
    fn a_peers_numbers_that_lead_nowhere_are_refused_and_nothing_stays_mapped() {
        let base = 0x7f00_0000_0000;
        let mapped = std::cell::Cell::new(0);
        let memory = SharedMemory::new(Fixed { base, mapped });
        let good = memory.sharing.export(&()).unwrap();
        let handle = |offset, bytes, address| ExportedHandle {
            offset,
            bytes,
            address,
            ..good
        };
        for (wrong, words) in [
            (handle(64, 64, base), "64 bytes into an object of 64"),
            (handle(64, BLOCK, 63), "at 0x3f"),
            (
                handle(u64::MAX - 1, u64::MAX, u64::MAX),
                "no address is that large",
            ),
        ] {
            let failure = memory.import(&wrong).unwrap_err();
            assert_eq!(failure.status, Status::INVALID_ARGUMENT);
            assert!(failure.message.contains(words), "{failure}");
            assert_eq!(memory.sharing.mapped.get(), 0, "{failure}");
        }
        let found = memory.import(&handle(64, BLOCK, base + 64)).unwrap();
        assert_eq!(found.address, DeviceAddress(base + 64));
        assert_eq!(memory.sharing.mapped.get(), 1);
    }

    #[test]
    fn a_unit_is_whole_blocks_and_one_of_nothing_is_an_error() {
        let unit = |reported| whole_blocks("granularity", reported, BLOCK);
        assert_eq!(unit(4096), Ok(BLOCK));
        assert_eq!(unit(BLOCK), Ok(BLOCK));
        assert_eq!(unit(3 << 20), Ok(3 << 20));
        let failure = unit(0).unwrap_err();
        assert_eq!(
            (failure.status, &*failure.call),
            (Status::CALL_FAILED, "granularity")
        );
    }

    #[test]
    fn sizes_round_up_to_whole_blocks_and_absurd_ones_are_refused() {
        assert_eq!(round_up(0, BLOCK).unwrap(), BLOCK);
        assert_eq!(round_up(BLOCK, BLOCK).unwrap(), BLOCK);
        assert_eq!(round_up(BLOCK + 1, BLOCK).unwrap(), 2 * BLOCK);
        for bytes in [u64::MAX, i64::MAX as u64] {
            let failure = round_up(bytes, BLOCK).unwrap_err();
            assert_eq!(failure.status, Status::OUT_OF_MEMORY);
            assert!(failure.message.contains(&bytes.to_string()));
        }
    }
}
