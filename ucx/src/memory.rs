//! Registered memory.

use crate::context::{ContextShared, Registration};
use crate::envelope::{self, Kind};
use crate::failure::{Failure, Result, check};
use crate::key::Region;
use crate::table::{Handle, MapParameters, MemoryAttributes};
use std::ptr;
use std::sync::{Arc, PoisonError};

/// Registered memory of this process. Dropping it ends the registration.
///
/// Where a network device executes transfers, it refuses those that arrive later. Over transports without one-sided
/// transfers in hardware, such as TCP, UCX executes them by software in the owner's [`progress`] and does **not** check
/// the registration: peers must have stopped before the memory is unmapped.
///
/// [`progress`]: crate::Worker::progress
pub struct Memory {
    context: Arc<ContextShared>,
    handle: Handle,
    address: usize,
    bytes: usize,
    host: bool,
}

// SAFETY: the handle is only passed to UCX under the context's lock; the address is a number here.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// As [`crate::Context::register`], with its conditions.
    pub(crate) unsafe fn register(
        context: &Arc<ContextShared>,
        address: *mut u8,
        bytes: usize,
    ) -> Result<Self> {
        const CALL: &str = "ucp_mem_map";
        if address.is_null() || bytes == 0 {
            return Err(Failure::refused(
                CALL,
                "no memory: pass an address and a size",
            ));
        }
        let _held = context.take();
        if context.overlaps(address as usize, bytes) {
            return Err(Failure::refused(
                CALL,
                "the memory overlaps with memory that is registered; drop that `Memory` first",
            ));
        }
        let parameters = MapParameters {
            field_mask: 1 | 1 << 1,
            address: address.cast(),
            length: bytes,
            flags: 0,
            prot: 0,
            memory_type: 0,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the context is open; the caller says that the memory is mapped and stays so.
        let status = unsafe {
            (context.table().ucp_mem_map)(context.handle, &raw const parameters, &raw mut handle)
        };
        check(context.table(), CALL, status)?;
        let mut memory = Self {
            context: context.clone(),
            handle,
            address: address as usize,
            bytes,
            host: true,
        };
        memory.host = memory.query_host()?;
        let registration = Registration {
            bytes,
            handle,
            host: memory.host,
        };
        context
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(memory.address, registration);
        Ok(memory)
    }

    /// Asks UCX whether it is the host's memory, and not a device's.
    fn query_host(&self) -> Result<bool> {
        let mut attributes = MemoryAttributes {
            field_mask: 1 << 2,
            address: ptr::null_mut(),
            length: 0,
            memory_type: 0,
        };
        let table = self.context.table();
        // SAFETY: the memory is registered, and UCX writes only the field of the mask.
        let status = unsafe { (table.ucp_mem_query)(self.handle, &raw mut attributes) };
        check(table, "ucp_mem_query", status)?;
        Ok(attributes.memory_type == 0)
    }

    /// Returns the first address.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether it is the host's memory, and not a device's.
    pub fn is_host(&self) -> bool {
        self.host
    }

    /// Returns the key with which peers access this memory, for [`crate::Endpoint::unpack`].
    ///
    /// # Errors
    /// UCX's, if memory runs out.
    pub fn packed_key(&self) -> Result<Vec<u8>> {
        let (mut key, mut bytes) = (ptr::null_mut(), 0);
        let table = self.context.table();
        let _held = self.context.take();
        // SAFETY: the memory is registered with this context; both results are writable.
        let status = unsafe {
            (table.ucp_rkey_pack)(
                self.context.handle,
                self.handle,
                &raw mut key,
                &raw mut bytes,
            )
        };
        check(table, "ucp_rkey_pack", status)?;
        // SAFETY: UCX returned this many bytes.
        let packed = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), bytes) };
        let region = Region {
            address: self.address(),
            bytes: self.bytes as u64,
            host: self.host,
        };
        let sealed = envelope::seal(Kind::Key, &region.pack(packed));
        // SAFETY: UCX returned this buffer, and its bytes were copied.
        unsafe { (table.ucp_rkey_buffer_release)(key) };
        Ok(sealed)
    }
}

impl ContextShared {
    /// Returns whether registered memory has one of these bytes.
    fn overlaps(&self, address: usize, bytes: usize) -> bool {
        let registered = self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let end = address.saturating_add(bytes);
        registered
            .range(..end)
            .next_back()
            .is_some_and(|(&start, memory)| start + memory.bytes > address)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _held = self.context.take();
        self.context
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.address);
        // SAFETY: the memory is registered with this context. Whoever started an operation from or to it has promised
        // that the registration lasts until it is complete.
        let status =
            unsafe { (self.context.table().ucp_mem_unmap)(self.context.handle, self.handle) };
        if let Err(failure) = check(self.context.table(), "ucp_mem_unmap", status) {
            tracing::warn!(%failure, "registered memory was not released");
        }
    }
}
