//! Capabilities and limits that all ranks share.

use super::{Result, exchange};
use serde::{Deserialize, Serialize};
use symmem::Communicator;
use symmem::backend::abi::Capabilities;
use symmem::backend::read_text;

pub(super) struct SharedLimits {
    pub capabilities: Capabilities,
    /// Size of the largest transfer, in bytes.
    pub limit: u64,
    /// Device name of each rank.
    pub devices: Vec<String>,
}

/// The values that a rank sends to the others.
#[derive(Serialize, Deserialize)]
struct RankLimits {
    flags: u64,
    shared_memory: u32,
    limit: u64,
    device: String,
}

impl SharedLimits {
    /// Determines the common values. Transfers may use a quarter of the free memory, divided among the
    /// ranks on one device. Collective; blocks.
    pub(super) fn agree(communicator: &Communicator) -> Result<Self> {
        let mut capabilities = *communicator.capabilities();
        let peers = communicator.peers();
        let sharing = peers.iter().filter(|peer| peer.same_device).count().max(1);
        let all = exchange::all_gather(
            communicator,
            &RankLimits {
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

/// Returns how bytes go between nodes, for reports; `None` if all ranks share a node.
pub(super) fn network(communicator: &Communicator) -> Option<String> {
    let network = communicator.network()?;
    Some(format!("{} nodes, {network}", communicator.nodes()))
}
