//! Opening a device.

use crate::clusters::Clusters;
use crate::context::Context;
use crate::driver::Driver;
use crate::driver::constants::device_attribute::*;
use crate::kernels::{Kernel, Modules};
use crate::memory::CudaSharing;
use crate::multicast::Objects;
use crate::{describe, kernels, libraries, multicast, tuning};
use cudarc::driver::sys::CUdevice;
use std::sync::{Arc, OnceLock};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Implementation};
use symmem_gpu::blaslt::PreparedGemms;
use symmem_gpu::tuning::collective_row;
use symmem_gpu::{Current, GpuState, OpenGpu, SharedMemory, Sharing};

/// The CUDA backend: one device, opened for one rank.
///
/// A process may have several open, on one device or on several. They share the device's primary context and
/// nothing else. Fields are dropped in order.
pub struct CudaBackend {
    pub(crate) clusters: Clusters,
    pub(crate) objects: Objects,
    pub(crate) state: GpuState<Kernel, CudaSharing>,
    /// Keeps the kernels loaded.
    _modules: Modules,
    pub(crate) context: Arc<Context>,
    pub(crate) driver: &'static Driver,
}

impl Implementation for CudaBackend {
    type Instance = OpenGpu<Self>;
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

    fn selector_row(index: u32) -> Option<CollectiveRow> {
        collective_row(tuning::COLLECTIVES, index)
    }

    fn open(options: &OpenOptions) -> CallResult<OpenGpu<Self>> {
        let driver = Driver::get()?;
        let description = describe::describe(driver, options.ordinal)?;
        describe::check_usable(&description)?;
        let device = describe::device(driver, options.ordinal)?;
        let shared_bytes = describe::attribute(driver, device, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let context = Arc::new(Context::retain(driver, device)?);
        let sharing = CudaSharing::new(driver, context.clone(), options.ordinal)?;
        let multicast = multicast::support(driver, device, &description, &sharing.kinds());
        let (modules, kernels) = kernels::load(
            driver,
            &context,
            description.architecture,
            shared_bytes,
            multicast.0,
        )?;
        let clusters = {
            let _entered = context.enter()?;
            Clusters::ask(driver, &kernels, description.compute_units, shared_bytes)?
        };
        let bulk = kernels.copy_bulk.is_some();
        let tables = tuning::transfers(description.architecture, bulk);
        let capabilities = Capabilities {
            flags: flags(driver, device, bulk)?,
            share_kinds: sharing.kinds(),
            share_granularity: sharing.granularity(),
            shared_memory_per_block: shared_bytes,
            fanout: tuning::FANOUT,
            put_rows: tables.put,
            get_rows: tables.get,
            driver_version: driver.version,
            reduce_inbox_bytes: tuning::REDUCE_INBOX_BYTES,
        };
        Ok(OpenGpu(Self {
            clusters,
            objects: Objects::new(multicast),
            state: GpuState {
                nccl: OnceLock::new(),
                gemms: PreparedGemms::default(),
                memory: SharedMemory::new(sharing),
                kernels,
                description,
                capabilities,
            },
            _modules: modules,
            context,
            driver,
        }))
    }
}

/// Returns a device's capabilities, as bits `CAPABILITY_*`.
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
    // Only informative, so a failed query does not fail the opening.
    if let Ok(Some(true)) = multicast::hardware(driver, device) {
        flags |= CAPABILITY_MULTICAST_HARDWARE;
    }
    Ok(flags)
}

/// Returns whether a stream can itself write and wait for a word.
///
/// Version 2 of these calls works wherever the driver has it, unless the device lacks the operations. The
/// attribute of version 1 tells of a module option, which is off by default since CUDA 12.0.
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
