//! The address table, in which receiving kernels look up a sender's memory: for each allocation, where each
//! rank's copy is mapped here.

use crate::backend::abi::DeviceAddress;
use crate::base::error::Result;
use crate::memory::staging::Staging;
use crate::rank::allocation::{Allocation, Attachment};
use crate::rank::driver::Driver;
use std::sync::Arc;

/// This rank's table: `[allocation's entry][rank of this node]`, addresses, 0 once given up.
#[derive(Clone)]
pub struct ExchangeTable {
    first: DeviceAddress,
    /// The ranks of this node.
    ranks: Vec<usize>,
    staging: Arc<Staging>,
}

impl ExchangeTable {
    /// Takes a zeroed table for `ranks`, those of this node, at `first`, in an allocation that lives as long as the communicator.
    pub fn new(first: DeviceAddress, ranks: &[usize], staging: Arc<Staging>) -> Self {
        let ranks = ranks.to_vec();
        Self {
            first,
            ranks,
            staging,
        }
    }

    /// Adds the addresses of a new allocation to the table, until it is given up.
    ///
    /// # Errors
    /// The backend's errors. They poison the communicator, since the other ranks have the allocation already.
    pub fn list(&self, driver: &Driver, allocation: &Allocation) -> Result<()> {
        let peers = (self.ranks.iter()).map(|&rank| allocation.peers()[rank]);
        let row = DeviceAddress(self.first.0 + (allocation.entry() * peers.len() * 8) as u64);
        let addresses: Vec<u8> = peers.flat_map(|peer| peer.0.to_le_bytes()).collect();
        self.staging
            .write(driver, row, &addresses)
            .inspect_err(|error| driver.health.poison(error.clone()))?;
        allocation.attach(Box::new(Row {
            address: row,
            bytes: addresses.len(),
            staging: self.staging.clone(),
        }));
        Ok(())
    }
}

/// The row of one allocation.
struct Row {
    address: DeviceAddress,
    bytes: usize,
    staging: Arc<Staging>,
}

impl Attachment for Row {
    fn name(&self) -> &'static str {
        "row of the address table"
    }

    /// Clears the row: a peer that still has the allocation may send from it, and the receiving kernel must
    /// then find no address.
    fn detach(&self, driver: &Driver) {
        if let Err(error) = self
            .staging
            .write(driver, self.address, &vec![0; self.bytes])
        {
            // The communicator is poisoned then, and no kernel that would read the table begins any more.
            tracing::debug!(rank = driver.rank, %error, "could not remove an allocation from the address table");
        }
    }
}
