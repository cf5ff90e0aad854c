//! The state that an open GPU has on every vendor.

use crate::blaslt::PreparedGemms;
use crate::kernels::Kernels;
use crate::memory::{SharedMemory, Sharing};
use crate::nccl::Communicators;
use std::sync::OnceLock;
use symmem_core::backend::abi::*;

/// The state that an open GPU has on every vendor. Fields are dropped in order.
pub struct GpuState<K, M: Sharing> {
    /// Communicators of NCCL or RCCL, once one was asked for.
    pub nccl: OnceLock<Communicators>,
    /// Prepared GEMMs of cuBLASLt or hipBLASLt.
    pub gemms: PreparedGemms,
    /// Allocations and mappings.
    pub memory: SharedMemory<M>,
    /// The kernels of `device/`.
    pub kernels: Kernels<K>,
    /// Description of the device.
    pub description: DeviceDescription,
    /// Capabilities of the device.
    pub capabilities: Capabilities,
}

impl<K, M: Sharing> GpuState<K, M> {
    /// Returns whether the device has a capability, one of `CAPABILITY_*`.
    #[inline]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities.flags & capability != 0
    }
}

impl<K, M: Sharing> Drop for GpuState<K, M> {
    fn drop(&mut self) {
        if self.gemms.is_open() {
            // The library destroys its handle on the current device.
            let _entered = self.memory.enter();
            self.gemms.close();
        }
    }
}
