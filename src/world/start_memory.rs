//! The memory that the start of a communicator takes. The setup allocates by this inventory, and `symmem info` prints it.

use crate::backend::CallResult;
use crate::base::names::SignalPlacement;
use crate::group::selector::{Selector, rows_of};
use crate::group::slots::Layout;
use crate::health::words;
use crate::memory::pad::{HostPad, SignalPad};
use crate::memory::staging::STAGING_BYTES;
use crate::world::configuration::BackendSource;

/// The memory that the start of a communicator takes on each rank, by part.
///
/// Groups, buffers and all-gather + GEMM take more when they are made. Not counted are the driver's own memory, the few
/// hundred kilobytes that all ranks of a host share to watch each other, and the rounding of the two device allocations
/// up to the driver's granularity (2 MiB on NVIDIA's and AMD's GPUs).
///
/// ```
/// # fn main() -> symmem::Result<()> {
/// let communicator = symmem::init()?;
/// let memory = communicator.start_memory();
/// println!("{} bytes on the device", memory.device_bytes());
/// for part in memory.parts() {
///     println!("{}: {} bytes", part.name, part.bytes);
/// }
/// # communicator.finalize().map(drop)
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartMemory {
    pub(crate) signal_pad: u64,
    pub(crate) slots: Layout,
    host_words: u64,
}

/// A part of the memory that a start takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPart {
    /// What it is for.
    pub name: &'static str,
    /// Whether it is memory of the device; otherwise it is pinned host memory.
    pub on_device: bool,
    /// Size in bytes.
    pub bytes: u64,
}

impl StartMemory {
    /// Returns the memory of a start with `world` ranks, of which `here` are on this node.
    pub(crate) fn new(
        selector: &Selector,
        (here, world): (usize, usize),
        placement: SignalPlacement,
    ) -> Self {
        Self {
            signal_pad: SignalPad::bytes(world),
            slots: Layout::of_all(selector, here),
            host_words: match placement {
                SignalPlacement::Host => HostPad::bytes(here, world),
                SignalPlacement::Device => 0,
            },
        }
    }

    /// Returns the memory of a start with `world` ranks, all on one node, on devices of this backend, each large enough for every grid of
    /// the backend's table, without tuning rows of the caller and with signal words on the device. Opens no device. A
    /// backend other than the host's counts as one of GPUs.
    ///
    /// # Errors
    /// The backend's failure; a plugin file that is older than this call has no answer.
    pub fn of(source: &BackendSource, world: usize) -> CallResult<Self> {
        let selector = match source {
            BackendSource::Host => Selector::unopened(Vec::new(), false),
            BackendSource::Tables(tables) => {
                let rows = rows_of(|index| tables.selector_row(index))?;
                Selector::unopened(rows, true)
            }
        };
        Ok(Self::new(
            &selector,
            (world, world),
            SignalPlacement::Device,
        ))
    }

    /// Returns the parts: those on the device first.
    pub fn parts(&self) -> Vec<MemoryPart> {
        let part = |on_device, name, bytes| MemoryPart {
            name,
            on_device,
            bytes,
        };
        let mut parts = vec![part(true, "signal pad", self.signal_pad)];
        let slots = self.slots.parts();
        parts.extend(slots.map(|(name, bytes)| part(true, name, bytes)));
        parts.push(part(false, "staging of host copies", STAGING_BYTES));
        parts.push(part(false, "abort word and wait record", words::bytes()));
        parts.push(part(false, "signal words on the host", self.host_words));
        parts.retain(|part| part.bytes > 0);
        parts
    }

    /// Returns the bytes of device memory.
    pub fn device_bytes(&self) -> u64 {
        let parts = self.parts();
        let of_device = parts.iter().filter(|part| part.on_device);
        of_device.map(|part| part.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_what_is_allocated() {
        let selector = Selector::unopened(Vec::new(), true);
        let memory = StartMemory::new(&selector, (4, 4), SignalPlacement::Device);
        let allocated = memory.signal_pad + memory.slots.bytes();
        assert_eq!(memory.device_bytes(), allocated);
        let host = StartMemory::new(&selector, (4, 4), SignalPlacement::Host);
        assert_eq!(host.device_bytes(), allocated, "counters stay there");
        assert_eq!(host.parts().len(), memory.parts().len() + 1);
    }

    #[test]
    fn a_group_of_one_needs_no_inbox() {
        let memory = StartMemory::of(&BackendSource::Host, 1).unwrap();
        let parts = memory.parts();
        let inboxes =
            |part: &&MemoryPart| part.name.contains("pieces") || part.name.contains("Lamport");
        assert_eq!(parts.iter().filter(inboxes).count(), 0);
    }
}
