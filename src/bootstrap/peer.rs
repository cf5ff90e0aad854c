//! The information that ranks have about each other.

use crate::bootstrap::codec::{Reader, Writer};
use crate::bootstrap::process::ProcessIdentity;

/// Information about a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInformation {
    /// The rank.
    pub rank: u32,
    /// Its process.
    pub process: ProcessIdentity,
    /// Its user ID.
    pub uid: u32,
    /// The boot ID of its machine: the same on all ranks of a host.
    pub boot_id: String,
    /// The key of its node: ranks with equal keys pass each other file descriptors and map each other's memory.
    pub node: String,
}

/// Most bytes of a node's key.
pub(super) const MAX_NODE: usize = 256;

impl PeerInformation {
    pub(super) fn encode(&self, body: &mut Writer) {
        let ProcessIdentity {
            pid,
            start_time,
            namespace,
        } = self.process;
        body.u32(self.rank)
            .u32(pid)
            .u64(start_time)
            .u64(namespace)
            .u32(self.uid)
            .text(&self.boot_id)
            .text(&self.node);
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let rank = reader.u32()?;
        let process = ProcessIdentity {
            pid: reader.u32()?,
            start_time: reader.u64()?,
            namespace: reader.u64()?,
        };
        Some(Self {
            rank,
            process,
            uid: reader.u32()?,
            boot_id: reader.text()?,
            node: reader.text().filter(|node| node.len() <= MAX_NODE)?,
        })
    }
}
