//! What the ranks of a measurement have in common.

use super::{Result, exchange};
use serde::{Deserialize, Serialize};
use symmem::Communicator;
use symmem::backend::abi::Capabilities;
use symmem::backend::read_text;

/// What all ranks have in common.
pub(super) struct Common {
    pub capabilities: Capabilities,
    /// Bytes of the largest transfer.
    pub limit: u64,
    /// The device of each rank.
    pub devices: Vec<String>,
}

/// What a rank tells of itself before the run.
#[derive(Serialize, Deserialize)]
struct Own {
    flags: u64,
    shared_memory: u32,
    limit: u64,
    device: String,
}

impl Common {
    /// Collective. Transfers may take a quarter of the memory that is free, shared by the ranks of a
    /// device.
    pub(super) fn agree(communicator: &Communicator) -> Result<Self> {
        let mut capabilities = *communicator.capabilities();
        let peers = communicator.peers();
        let sharing = peers.iter().filter(|peer| peer.same_device).count().max(1);
        let all = exchange::all_gather(
            communicator,
            &Own {
                flags: capabilities.flags,
                shared_memory: capabilities.shared_memory_per_block,
                limit: communicator.memory_information()?.free / 4 / sharing as u64,
                device: read_text(&communicator.device().name),
            },
        )?;
        let mut limit = u64::MAX;
        for own in &all {
            capabilities.flags &= own.flags;
            capabilities.shared_memory_per_block =
                capabilities.shared_memory_per_block.min(own.shared_memory);
            limit = limit.min(own.limit);
        }
        Ok(Self {
            capabilities,
            limit,
            devices: all.into_iter().map(|own| own.device).collect(),
        })
    }
}
