//! What an open GPU has on every vendor.

use crate::kernels::Kernels;
use crate::matrix_library::Products;
use crate::memory::{SharedMemory, Sharing};
use crate::vendor_library::Communicators;
use std::sync::OnceLock;
use symmem_core::backend::abi::*;

/// What an open GPU has on every vendor. Field order is the order in which it is given up.
pub struct Parts<K, M: Sharing> {
    /// The communicators of the vendor's library, once one was asked for.
    pub vendor: OnceLock<Communicators>,
    /// The products of its library of these.
    pub products: Products,
    /// Allocations and mappings.
    pub memory: SharedMemory<M>,
    /// The kernels of `device/`.
    pub kernels: Kernels<K>,
    /// What the device is.
    pub description: DeviceDescription,
    /// What it can do.
    pub capabilities: Capabilities,
}

impl<K, M: Sharing> Parts<K, M> {
    /// Whether the device has a capability, one of `CAPABILITY_*`.
    #[inline]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities.flags & capability != 0
    }
}

impl<K, M: Sharing> Drop for Parts<K, M> {
    fn drop(&mut self) {
        if self.products.is_open() {
            // The library ends its instance on the device that is current.
            let _entered = self.memory.enter();
            self.products.close();
        }
    }
}
