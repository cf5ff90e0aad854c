//! Keys of peers' memory.

use crate::context::ContextShared;
use crate::operation::Peer;
use crate::table::Handle;
use crate::worker::WorkerShared;
use std::sync::Arc;

/// The key of a peer's [`crate::Memory`], for operations of the endpoint that unpacked it.
pub struct RemoteKey {
    // Dropped first: it must not outlive the worker.
    pub(crate) key: Arc<Key>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) region: Region,
    pub(crate) _worker: Arc<WorkerShared>,
}

/// The memory of a key, as its owner described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub address: u64,
    pub bytes: u64,
    /// Whether it is the host's memory, and not a device's.
    pub host: bool,
}

impl Region {
    /// Bytes of a packed region, in front of UCX's key.
    const BYTES: usize = 24;

    /// Returns UCX's key with the region in front.
    pub fn pack(&self, key: &[u8]) -> Vec<u8> {
        let mut packed = Vec::with_capacity(Self::BYTES + key.len());
        for number in [self.address, self.bytes, self.host.into()] {
            packed.extend(number.to_le_bytes());
        }
        packed.extend(key);
        packed
    }

    /// Separates the region and UCX's key.
    pub fn unpack(packed: &[u8]) -> Option<(Self, &[u8])> {
        let (region, key) = packed.split_first_chunk::<{ Self::BYTES }>()?;
        let (numbers, _) = region.as_chunks::<8>();
        let number = |index: usize| u64::from_le_bytes(numbers[index]);
        let region = Self {
            address: number(0),
            bytes: number(1),
            host: number(2) != 0,
        };
        Some((region, key))
    }

    /// Returns whether all these bytes lie in the region.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.address);
        offset <= self.bytes && bytes <= self.bytes - offset
    }
}

/// `ucp_rkey_h`. Operations in flight hold it too, and end before their worker.
pub(crate) struct Key {
    pub context: Arc<ContextShared>,
    pub handle: Handle,
}

// SAFETY: the handle is only passed to UCX under the context's lock.
unsafe impl Send for Key {}
// SAFETY: as above.
unsafe impl Sync for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        let _held = self.context.take();
        // SAFETY: no operation uses the key any more, and its worker is still open.
        unsafe { (self.context.table().ucp_rkey_destroy)(self.handle) }
    }
}

#[cfg(test)]
mod tests {
    use super::Region;

    #[test]
    fn a_region_contains_what_lies_in_it_and_nothing_else() {
        let region = Region {
            address: 0x1000,
            bytes: 64,
            host: true,
        };
        for (address, bytes, inside) in [
            (0x1000, 64, true),
            (0x1000, 65, false),
            (0x0fff, 1, false),
            (0x103f, 1, true),
            (0x1040, 0, true),
            (0x1040, 1, false),
            (0x1041, 0, false),
            (0x1008, u64::MAX, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(
                region.contains(address, bytes),
                inside,
                "{address:#x} {bytes}"
            );
        }
        let packed = region.pack(b"key");
        assert_eq!(Region::unpack(&packed), Some((region, &b"key"[..])));
        assert_eq!(Region::unpack(&packed[..23]), None);
    }
}
