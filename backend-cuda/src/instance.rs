//! An open device.

use crate::context::{Context, Entered};
use crate::driver::constants::STREAM_NON_BLOCKING;
use crate::driver::constants::device_attribute::*;
use crate::driver::{Driver, call};
use crate::kernels::Kernels;
use crate::memory::Memory;
use crate::tuning::{REDUCE_INBOX_BYTES, tuning};
use crate::{describe, libraries, memory, multicast};
use cudarc::driver::sys::{CUdevice, CUstream};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};
use symmem_core::backend::abi::*;
use symmem_core::backend::vendor_library::Communicators;
use symmem_core::backend::{CallResult, Implementation};

/// The CUDA backend: one device, opened for one rank.
///
/// Several may be open in one process, on one device or on several; they share the device's primary
/// context and nothing else. Field order is the order in which they are given up.
pub struct CudaBackend {
    pub(crate) vendor: OnceLock<Communicators>,
    pub(crate) memory: Memory,
    pub(crate) kernels: Kernels,
    pub(crate) setup: SetupStream,
    pub(crate) context: Arc<Context>,
    pub(crate) driver: &'static Driver,
    pub(crate) description: DeviceDescription,
    pub(crate) capabilities: Capabilities,
}

impl CudaBackend {
    /// Makes the device's context current on this thread.
    #[inline]
    pub(crate) fn enter(&self) -> CallResult<Entered<'_>> {
        self.context.enter()
    }

    /// Gives something back, in the context; done even where the context cannot be made current,
    /// since most things know theirs and whatever is not given back now never will be.
    pub(crate) fn give_back(&self, call: impl FnOnce() -> CallResult<()>) -> CallResult<()> {
        let entered = self.enter();
        let given = call();
        entered.map(drop).and(given)
    }

    /// Whether the device has a capability, one of `CAPABILITY_*`.
    #[inline]
    pub(crate) fn has(&self, capability: u64) -> bool {
        self.capabilities.flags & capability != 0
    }
}

impl Implementation for CudaBackend {
    const NAME: &'static str = "cuda";

    fn device_count() -> CallResult<u32> {
        describe::count(Driver::get()?)
    }

    fn describe_device(ordinal: u32) -> CallResult<DeviceDescription> {
        describe::describe(Driver::get()?, ordinal)
    }

    fn describe_libraries() -> String {
        libraries::describe()
    }

    fn open(options: &OpenOptions) -> CallResult<Self> {
        let driver = Driver::get()?;
        let description = describe::describe(driver, options.ordinal)?;
        describe::check_usable(&description)?;
        let device = describe::device(driver, options.ordinal)?;
        let shared_bytes = describe::attribute(driver, device, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let context = Arc::new(Context::retain(driver, device)?);
        let setup = SetupStream::create(driver, &context)?;
        let kernels = Kernels::load(driver, &context, description.architecture, shared_bytes)?;
        let bulk = kernels.copy_bulk.is_some();
        let tuning = tuning(description.architecture, bulk);
        let capabilities = Capabilities {
            flags: flags(driver, device, bulk)?,
            share_kinds: memory::share_kinds(driver, device)?,
            share_granularity: memory::granularity(driver, device)?,
            shared_memory_per_block: shared_bytes,
            fanout: tuning.fanout,
            put_rows: tuning.put,
            get_rows: tuning.get,
            driver_version: driver.version,
            reduce_inbox_bytes: REDUCE_INBOX_BYTES,
        };
        Ok(Self {
            vendor: OnceLock::new(),
            memory: Memory::new(driver, context.clone()),
            kernels,
            setup,
            context,
            driver,
            description,
            capabilities,
        })
    }
}

/// `CAPABILITY_*` of a device.
fn flags(driver: &Driver, device: CUdevice, bulk: bool) -> CallResult<u64> {
    let has = |attribute| Ok(describe::attribute(driver, device, attribute)? != 0);
    let mut flags = CAPABILITY_GRAPHS | CAPABILITY_LAUNCH;
    if bulk {
        flags |= CAPABILITY_BULK;
    }
    if has(ASYNC_ENGINE_COUNT)? {
        flags |= CAPABILITY_COPY_ENGINE;
    }
    if stream_memory_operations(driver, device)? {
        flags |= CAPABILITY_STREAM_WAIT;
    }
    if multicast::hardware(driver, device)? == Some(true) {
        flags |= CAPABILITY_MULTICAST_HARDWARE;
    }
    Ok(flags)
}

/// Whether a stream can write and wait for a word itself.
///
/// The second version of these calls always works where it exists, save where the device has none
/// at all; the attribute of the first version is a module option that is off by default since 12.0.
fn stream_memory_operations(driver: &Driver, device: CUdevice) -> CallResult<bool> {
    let table = &driver.table;
    if table.cuStreamWriteValue32_v2.is_none() || table.cuStreamWaitValue32_v2.is_none() {
        return Ok(false);
    }
    Ok(
        describe::attribute(driver, device, CAN_USE_STREAM_WAIT_VALUE_NOR)? != 0
            || describe::attribute(driver, device, CAN_USE_STREAM_MEM_OPS_V1)? != 0,
    )
}

/// A stream for what an instance does by itself (clearing new memory), ordered with no other.
pub(crate) struct SetupStream {
    driver: &'static Driver,
    context: Arc<Context>,
    pub(crate) raw: CUstream,
}

// SAFETY: a stream is a handle that the driver lets any thread use.
unsafe impl Send for SetupStream {}
// SAFETY: as above.
unsafe impl Sync for SetupStream {}

impl SetupStream {
    fn create(driver: &'static Driver, context: &Arc<Context>) -> CallResult<Self> {
        let _entered = context.enter()?;
        let mut raw = null_mut();
        // SAFETY: the place is writable and the context current.
        unsafe { call!(driver, cuStreamCreate(&raw mut raw, STREAM_NON_BLOCKING)) }?;
        Ok(Self {
            driver,
            context: context.clone(),
            raw,
        })
    }
}

impl Drop for SetupStream {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        // SAFETY: created by `create` and destroyed only here. Nobody is left to tell of a failure.
        unsafe { (self.driver.table.cuStreamDestroy_v2)(self.raw) };
    }
}
