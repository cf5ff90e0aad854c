//! The trait `Multicast` for CUDA. Holds no lock while it calls the driver.

use super::advice::advise;
use super::functions::{Functions, ObjectProperties};
use super::objects::Object;
use crate::driver::constants::{
    GRANULARITY_MINIMUM, GRANULARITY_RECOMMENDED, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
};
use crate::instance::CudaBackend;
use crate::memory::{Allocation, vmm};
use cudarc::driver::sys::CUdevice;
use rustix::fd::IntoRawFd;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Failure, Multicast};
use symmem_gpu::Current;
use symmem_gpu::memory::Span;
use symmem_gpu::vmm::VirtualMemory;

/// Calls a multicast function by name.
///
/// Expands to an unsafe call, inside the caller's `unsafe` block.
macro_rules! multicast {
    ($backend:expr, $functions:expr, $bytes:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $backend.check_call($bytes, stringify!($name), ($functions.$name)($($argument),*))
    };
}

fn properties(devices: u32, bytes: u64) -> ObjectProperties {
    ObjectProperties {
        devices,
        bytes: bytes as usize,
        handle_types: HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.into(),
        flags: 0,
    }
}

impl CudaBackend {
    fn device_number(&self) -> CUdevice {
        self.context.device()
    }

    fn check_call(&self, bytes: u64, call: &'static str, code: u32) -> CallResult<()> {
        self.driver.check(call, code).map_err(|failure| {
            let free = self.memory_information().ok().map(|memory| memory.free);
            advise(failure, bytes, free)
        })
    }

    fn virtual_memory(&self) -> vmm::Runtime<'_> {
        vmm::Runtime {
            driver: self.driver,
            device: self.device_number(),
        }
    }

    /// Returns a granularity of an object in bytes. Device current.
    fn object_granularity(
        &self,
        functions: &Functions,
        properties: &ObjectProperties,
        option: u32,
    ) -> CallResult<u64> {
        let mut granularity = 0;
        let (place, asked) = (&raw mut granularity, &raw const *properties);
        let bytes = properties.bytes as u64;
        // SAFETY: the out-pointer is writable, and all fields of the properties are set.
        unsafe {
            multicast!(
                self,
                functions,
                bytes,
                cuMulticastGetGranularity(place, asked, option)
            )
        }?;
        match granularity {
            0 => Err(Failure::new(
                Status::CALL_FAILED,
                "cuMulticastGetGranularity",
                "the driver reports a granularity of 0 bytes",
            )),
            granularity => Ok(granularity as u64),
        }
    }

    /// Undoes in reverse order all that this device did to an object. No work may still use the object.
    ///
    /// # Errors
    /// The first failure; later steps are made all the same.
    fn give_back_object(&self, functions: &Functions, object: &Object) -> CallResult<()> {
        let unmapped = match object.address {
            Some(address) => self.unmap_object(address, object.bytes),
            None => Ok(()),
        };
        let (handle, device) = (object.handle, self.device_number());
        let mut result = unmapped;
        for &(offset, bytes) in &object.bound {
            // SAFETY: the object was bound with this offset and size, and the caller says that no work uses it
            // any more.
            let unbound = unsafe {
                let (offset, size) = (offset as usize, bytes as usize);
                multicast!(
                    self,
                    functions,
                    bytes,
                    cuMulticastUnbind(handle, device, offset, size)
                )
            };
            result = result.and(unbound);
        }
        let released = self.virtual_memory().release(handle);
        result.and(released)
    }

    fn unmap_object(&self, address: u64, bytes: u64) -> CallResult<()> {
        let memory = self.virtual_memory();
        let unmapped = memory.unmap(address, bytes);
        let given = memory.unreserve(address, bytes);
        unmapped.and(given)
    }

    /// Releases the objects that the caller did not.
    fn close_multicast(&self) {
        let left: Vec<Object> = self
            .objects
            .live()
            .drain()
            .map(|(_, object)| object)
            .collect();
        let Some(functions) = (!left.is_empty())
            .then(Functions::to_give_back)
            .and_then(Result::ok)
        else {
            return;
        };
        // Nobody is left to report failures to; a failure does not keep the other objects.
        let _entered = self.enter();
        for object in left {
            let _ = self.give_back_object(functions, &object);
        }
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        // Objects go before the memory that is bound to them.
        self.close_multicast();
    }
}

impl Multicast for CudaBackend {
    fn multicast_support(&self) -> CallResult<MulticastSupportCode> {
        Ok(self.objects.support)
    }

    fn multicast_granularity(&self, devices: u32, bytes: u64) -> CallResult<u64> {
        let functions = self
            .objects
            .functions("multicast_granularity", self.driver)?;
        let _entered = self.enter()?;
        let properties = properties(devices, bytes);
        self.object_granularity(functions, &properties, GRANULARITY_MINIMUM)
    }

    fn multicast_create(&self, devices: u32, bytes: u64) -> CallResult<RawMulticast> {
        const CALL: &str = "multicast_create";
        let functions = self.objects.functions(CALL, self.driver)?;
        let _entered = self.enter()?;
        let mut properties = properties(devices, bytes);
        let unit = self.object_granularity(functions, &properties, GRANULARITY_RECOMMENDED)?;
        let granularity = self.object_granularity(functions, &properties, GRANULARITY_MINIMUM)?;
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(unit)
            .filter(|&bytes| bytes <= isize::MAX as u64)
            .ok_or_else(|| {
                let why = format!("{bytes} bytes are too many; set SYMMEM_MULTICAST_BYTES to less");
                Failure::new(Status::INVALID_ARGUMENT, CALL, why)
            })?;
        properties.bytes = bytes as usize;
        let mut handle = 0;
        let (place, asked) = (&raw mut handle, &raw const properties);
        // SAFETY: the out-pointer is writable, and all fields of the properties are set.
        unsafe { multicast!(self, functions, bytes, cuMulticastCreate(place, asked)) }?;
        Ok(self.objects.keep(Object {
            handle,
            bytes,
            granularity,
            address: None,
            bound: Vec::new(),
        }))
    }

    unsafe fn multicast_export(&self, multicast: RawMulticast) -> CallResult<ExportedHandle> {
        const CALL: &str = "multicast_export";
        self.objects.functions(CALL, self.driver)?;
        let object = self.objects.find(CALL, multicast)?;
        let _entered = self.enter()?;
        let span = Span {
            base: 0,
            bytes: object.bytes,
            offset: 0,
        };
        let ordinal = self.state.description.ordinal;
        let mut exported = span.handle(ShareKindCode::VMM_FILE_DESCRIPTOR, ordinal);
        exported.opaque[..8].copy_from_slice(&object.granularity.to_le_bytes());
        let descriptor = vmm::descriptor(self.driver, object.handle)
            .map_err(|failure| advise(failure, object.bytes, None))?;
        exported.descriptor = descriptor.into_raw_fd();
        Ok(exported)
    }

    unsafe fn multicast_import(&self, exported: &ExportedHandle) -> CallResult<RawMulticast> {
        const CALL: &str = "multicast_import";
        self.objects.functions(CALL, self.driver)?;
        let mut granularity = [0; 8];
        granularity.copy_from_slice(&exported.opaque[..8]);
        let granularity = u64::from_le_bytes(granularity);
        // Numbers of a peer's handle are not trusted.
        if granularity == 0
            || exported.bytes == 0
            || exported.bytes > isize::MAX as u64
            || !exported.bytes.is_multiple_of(granularity)
        {
            let bytes = exported.bytes;
            let why = format!(
                "the peer's handle is invalid: {bytes} bytes with a granularity of {granularity} bytes"
            );
            return Err(Failure::new(Status::INVALID_ARGUMENT, CALL, why));
        }
        let _entered = self.enter()?;
        let handle = vmm::import_handle(self.driver, exported)
            .map_err(|failure| advise(failure, exported.bytes, None))?;
        Ok(self.objects.keep(Object {
            handle,
            bytes: exported.bytes,
            granularity,
            address: None,
            bound: Vec::new(),
        }))
    }

    unsafe fn multicast_join(&self, multicast: RawMulticast) -> CallResult<()> {
        const CALL: &str = "multicast_join";
        let functions = self.objects.functions(CALL, self.driver)?;
        let object = self.objects.find(CALL, multicast)?;
        let _entered = self.enter()?;
        let (handle, device) = (object.handle, self.device_number());
        // SAFETY: `find` returned a live object.
        unsafe {
            multicast!(
                self,
                functions,
                object.bytes,
                cuMulticastAddDevice(handle, device)
            )
        }
    }

    unsafe fn multicast_bind(
        &self,
        multicast: RawMulticast,
        offset: u64,
        allocation: RawAllocation,
        bytes: u64,
    ) -> CallResult<()> {
        const CALL: &str = "multicast_bind";
        let functions = self.objects.functions(CALL, self.driver)?;
        let object = self.objects.find(CALL, multicast)?;
        let refuse = |why: String| Err(Failure::new(Status::INVALID_ARGUMENT, CALL, why));
        let room = object.bytes.checked_sub(offset);
        if room.is_none_or(|room| bytes > room) || bytes == 0 {
            return refuse(format!(
                "{bytes} bytes at offset {offset} are not within an object of {} bytes",
                object.bytes
            ));
        }
        let memory = self
            .state
            .memory
            .with_allocation(allocation, |found| match found {
                Allocation::Vmm(memory) if bytes <= memory.bytes => Some(memory.physical),
                _ => None,
            })?;
        let Some(memory) = memory else {
            return refuse(format!(
                "cannot bind {bytes} bytes of this allocation: bind memory of kind VMM_FILE_DESCRIPTOR, and \
                 at most its size"
            ));
        };
        let _entered = self.enter()?;
        let handle = object.handle;
        // SAFETY: the object is live, and the caller keeps the allocation live while it is bound.
        unsafe {
            let (at, size) = (offset as usize, bytes as usize);
            multicast!(
                self,
                functions,
                bytes,
                cuMulticastBindMem(handle, at, memory, 0, size, 0)
            )
        }?;
        self.objects
            .change(multicast, |object| object.bound.push((offset, bytes)));
        Ok(())
    }

    unsafe fn multicast_map(&self, multicast: RawMulticast) -> CallResult<DeviceAddress> {
        const CALL: &str = "multicast_map";
        self.objects.functions(CALL, self.driver)?;
        let object = self.objects.find(CALL, multicast)?;
        let _entered = self.enter()?;
        let (memory, bytes) = (self.virtual_memory(), object.bytes);
        let address = memory.reserve_aligned(bytes, object.granularity)?;
        let mapped = memory
            .map(address, bytes, object.handle)
            .map_err(|failure| advise(failure, bytes, None));
        if let Err(failure) = mapped {
            // Report the first failure only.
            let _ = memory.unreserve(address, bytes);
            return Err(failure);
        }
        if let Err(failure) = memory.permit(address, bytes) {
            let _ = self.unmap_object(address, bytes);
            return Err(advise(failure, bytes, None));
        }
        self.objects
            .change(multicast, |object| object.address = Some(address));
        Ok(DeviceAddress(address))
    }

    unsafe fn multicast_unmap(&self, multicast: RawMulticast) -> CallResult<()> {
        const CALL: &str = "multicast_unmap";
        let object = self.objects.find(CALL, multicast)?;
        let Some(address) = object.address else {
            let why = "this multicast object is not mapped on this device";
            return Err(Failure::new(Status::INVALID_ARGUMENT, CALL, why));
        };
        self.objects
            .change(multicast, |object| object.address = None);
        self.give_back(|| self.unmap_object(address, object.bytes))
    }

    unsafe fn multicast_unbind(
        &self,
        multicast: RawMulticast,
        offset: u64,
        bytes: u64,
    ) -> CallResult<()> {
        const CALL: &str = "multicast_unbind";
        let functions = self.objects.functions_to_give_back(CALL)?;
        let object = self.objects.find(CALL, multicast)?;
        let (handle, device) = (object.handle, self.device_number());
        self.objects.change(multicast, |object| {
            object.bound.retain(|&bound| bound != (offset, bytes));
        });
        // SAFETY: the caller says that this offset and size are bound, and that no work uses them any more.
        self.give_back(|| unsafe {
            let (at, size) = (offset as usize, bytes as usize);
            multicast!(
                self,
                functions,
                bytes,
                cuMulticastUnbind(handle, device, at, size)
            )
        })
    }

    unsafe fn multicast_release(&self, multicast: RawMulticast) -> CallResult<()> {
        const CALL: &str = "multicast_release";
        let functions = self.objects.functions_to_give_back(CALL)?;
        let object = self.objects.find(CALL, multicast)?;
        self.objects.live().remove(&multicast.0);
        self.give_back(|| self.give_back_object(functions, &object))
    }
}
