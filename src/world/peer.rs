//! A rank of the world, as the others see it.

/// A rank of the world, as it described itself when the communicator was set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number in the world.
    pub rank: usize,
    /// Its node, counted from 0 in the order of their lowest ranks. Ranks of one node address each other's memory.
    pub node: usize,
    /// Its process ID, on its own host.
    pub process: u32,
    /// Its device's ordinal, in its own numbering.
    pub device: u32,
    /// UUID of its device. A vendor may use one UUID for all partitions of a device.
    pub uuid: [u8; 16],
    /// PCI address of its device as text, zero-padded.
    pub bus: [u8; 16],
    /// Whether it is a thread of this process.
    pub same_process: bool,
    /// Whether it uses the same device as this rank.
    pub same_device: bool,
}

impl Peer {
    /// Returns what identifies its device on this machine. The UUID alone does not: partitions of one device
    /// may share it.
    pub(crate) fn identity(&self) -> ([u8; 16], [u8; 16]) {
        (self.uuid, self.bus)
    }
}
