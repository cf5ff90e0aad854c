//! Opens a device.

use crate::current::Ordinal;
use crate::kernels::{self, Kernel, Modules};
use crate::memory::HipSharing;
use crate::modules::Images;
use crate::runtime::Runtime;
use crate::runtime::constants::device_attribute::*;
use crate::{describe, libraries, tuning};
use std::sync::OnceLock;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Implementation};
use symmem_gpu::blaslt::PreparedGemms;
use symmem_gpu::tuning::collective_row;
use symmem_gpu::{GpuState, OpenGpu, SharedMemory, Sharing};
use symmem_kernels_hip::Target;

/// The HIP backend: a device that is open for one rank.
///
/// A process may open several, on the same device or on different ones. Fields are dropped in order.
pub struct HipBackend {
    pub(crate) state: GpuState<Kernel, HipSharing>,
    pub(crate) modules: Modules,
    pub(crate) images: Images,
    pub(crate) device: Ordinal,
    pub(crate) target: Target,
    /// Nanoseconds per tick of the constant clock.
    pub(crate) tick_ns: u32,
}

impl Implementation for HipBackend {
    type Instance = OpenGpu<Self>;
    const NAME: &'static str = "hip";

    fn device_count() -> CallResult<u32> {
        Runtime::get()?.device_count()
    }

    fn describe_device(ordinal: u32) -> CallResult<DeviceDescription> {
        describe::describe(Runtime::get()?, ordinal)
    }

    fn describe_libraries() -> String {
        libraries::describe()
    }

    fn selector_row(index: u32) -> Option<CollectiveRow> {
        collective_row(tuning::COLLECTIVES, index)
    }

    fn open(options: &OpenOptions) -> CallResult<OpenGpu<Self>> {
        let runtime = Runtime::get()?;
        let number = options.ordinal;
        let description = describe::describe(runtime, number)?;
        let architecture = describe::architecture_name(runtime, number)?;
        let target = describe::target(&architecture, number)?;
        let device = Ordinal { runtime, number };
        let attribute = |attribute| describe::attribute(runtime, number, attribute);
        let sharing = HipSharing::new(device, target)?;
        let (modules, kernels) = kernels::load(device, target)?;
        let tables = tuning::transfers();
        let mut flags = CAPABILITY_GRAPHS | CAPABILITY_LAUNCH;
        if attribute(ASYNC_ENGINE_COUNT)? != 0 {
            flags |= CAPABILITY_COPY_ENGINE;
        }
        let capabilities = Capabilities {
            flags,
            share_kinds: sharing.kinds(),
            share_granularity: sharing.granularity(),
            shared_memory_per_block: attribute(MAX_SHARED_MEMORY_PER_BLOCK)?,
            fanout: tuning::FANOUT,
            put_rows: tables.put,
            get_rows: tables.get,
            driver_version: runtime.version,
            reduce_inbox_bytes: tuning::REDUCE_INBOX_BYTES,
        };
        let state = GpuState {
            nccl: OnceLock::new(),
            gemms: PreparedGemms::default(),
            memory: SharedMemory::new(sharing),
            kernels,
            description,
            capabilities,
        };
        Ok(OpenGpu(Self {
            state,
            modules,
            images: Images::default(),
            device,
            target,
            tick_ns: tick_ns(attribute(WALL_CLOCK_RATE)?, target),
        }))
    }
}

/// Returns the nanoseconds per tick of the constant clock from its rate in kHz. Runtimes before 5.4 report 0;
/// newer ones report 25 MHz for gfx90a and 100 MHz for its successors.
fn tick_ns(kilohertz: u32, target: Target) -> u32 {
    match (kilohertz, target) {
        (1..=1_000_000, _) => 1_000_000 / kilohertz,
        (_, Target::Gfx90a) => 40,
        _ => 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_follows_from_the_clocks_rate_or_the_architecture() {
        assert_eq!(tick_ns(100_000, Target::Gfx942), 10);
        assert_eq!(tick_ns(25_000, Target::Gfx90a), 40);
        assert_eq!(tick_ns(0, Target::Gfx90a), 40);
        assert_eq!(tick_ns(0, Target::Gfx950), 10);
    }
}
