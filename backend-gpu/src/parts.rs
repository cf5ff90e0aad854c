//! The state that an open GPU has on every vendor.

use crate::kernels::Kernels;
use crate::matrix_library::Products;
use crate::memory::{SharedMemory, Sharing};
use crate::vendor_library::Communicators;
use std::sync::OnceLock;
use symmem_core::backend::abi::*;

/// The state that an open GPU has on every vendor. Fields are dropped in order.
pub struct Parts<K, M: Sharing> {
    /// Communicators of NCCL or RCCL, once one was asked for.
    pub vendor: OnceLock<Communicators>,
    /// Prepared GEMMs of cuBLASLt or hipBLASLt.
    pub products: Products,
    /// Allocations and mappings.
    pub memory: SharedMemory<M>,
    /// The kernels of `device/`.
    pub kernels: Kernels<K>,
    /// Description of the device.
    pub description: DeviceDescription,
    /// Capabilities of the device.
    pub capabilities: Capabilities,
}

impl<K, M: Sharing> Parts<K, M> {
    /// Returns whether the device has a capability, one of `CAPABILITY_*`.
    #[inline]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities.flags & capability != 0
    }
}

impl<K, M: Sharing> Drop for Parts<K, M> {
    fn drop(&mut self) {
        if self.products.is_open() {
            // The library destroys its handle on the current device.
            let _entered = self.memory.enter();
            self.products.close();
        }
    }
}
