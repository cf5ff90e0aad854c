//! The table by which a kernel that receives finds what it was sent: for each allocation, where each rank's copy
//! is mapped here.

use crate::backend::abi::DeviceAddress;
use crate::base::error::Result;
use crate::memory::staging::Staging;
use crate::rank::allocation::{Allocation, Attachment};
use crate::rank::driver::Driver;
use std::sync::Arc;

/// The table of this rank: `[allocation's entry][rank]`, addresses, 0 once given up.
#[derive(Clone)]
pub struct ExchangeTable {
    first: DeviceAddress,
    staging: Arc<Staging>,
}

impl ExchangeTable {
    /// A zeroed table that begins at an address of this device, of an allocation that is there as long as the
    /// communicator.
    pub fn new(first: DeviceAddress, staging: Arc<Staging>) -> Self {
        Self { first, staging }
    }

    /// Puts the addresses of a new allocation into the table, until it is given up.
    ///
    /// # Errors
    /// The backend's: the other ranks have the allocation already, and are told that this device is lost.
    pub fn list(&self, driver: &Driver, allocation: &Allocation) -> Result<()> {
        let peers = allocation.peers();
        let row = DeviceAddress(self.first.0 + (allocation.entry() * peers.len() * 8) as u64);
        let addresses: Vec<u8> = peers.iter().flat_map(|peer| peer.0.to_le_bytes()).collect();
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
        "row of the table of addresses"
    }

    /// Takes it out: a peer that still has the allocation may send from it, and what receives finds no address
    /// then.
    fn detach(&self, driver: &Driver) {
        if let Err(error) = self
            .staging
            .write(driver, self.address, &vec![0; self.bytes])
        {
            // All is lost then, and nothing that would look there begins any more.
            tracing::debug!(rank = driver.rank, %error, "taking an allocation out of the table");
        }
    }
}
