//! What another rank is.

/// What another rank is, as it told when the communicator came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its rank.
    pub rank: usize,
    /// Its process.
    pub process: u32,
    /// Its device's ordinal, in its own numbering.
    pub device: u32,
    /// Identifies its device; partitions of one device may have it in common.
    pub uuid: [u8; 16],
    /// Its device's PCI address as text, zero-padded.
    pub bus: [u8; 16],
    /// Whether it is a thread of this process.
    pub same_process: bool,
    /// Whether it uses the same device as this rank.
    pub same_device: bool,
}

impl Peer {
    /// What tells its device from every other of the machine: the UUID alone does not, where a vendor's
    /// partitions of a device have it in common.
    pub(crate) fn identity(&self) -> ([u8; 16], [u8; 16]) {
        (self.uuid, self.bus)
    }
}
