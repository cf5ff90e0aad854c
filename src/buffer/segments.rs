//! The segments of a framework's allocator.

use crate::backend::abi::DeviceAddress;
use crate::buffer::local::LocalMemory;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

/// What was allocated for a framework that knows memory by its address, and by which owner of a communicator, `R`. For
/// libraries that give a framework two functions, to allocate and to free.
pub struct Segments<R> {
    /// By first address.
    segments: RwLock<BTreeMap<u64, Segment<R>>>,
}

struct Segment<R> {
    memory: Arc<LocalMemory>,
    owner: Weak<R>,
}

impl<R> Default for Segments<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Segments<R> {
    /// Returns a table of no segments.
    pub const fn new() -> Self {
        Self {
            segments: RwLock::new(BTreeMap::new()),
        }
    }

    /// Enters a segment, and returns its address.
    pub fn add(&self, memory: LocalMemory, owner: &Arc<R>) -> DeviceAddress {
        let address = memory.address();
        let segment = Segment {
            memory: Arc::new(memory),
            owner: Arc::downgrade(owner),
        };
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        segments.insert(address.0, segment);
        address
    }

    /// Returns the segment in which an address is, and how many bytes from its begin.
    pub fn find(&self, address: DeviceAddress) -> Option<(Arc<LocalMemory>, usize)> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let (begin, segment) = segments.range(..=address.0).next_back()?;
        let offset = usize::try_from(address.0 - begin).ok()?;
        (offset < segment.memory.bytes()).then(|| (Arc::clone(&segment.memory), offset))
    }

    /// Takes the segment that begins at an address out, and its owner, if that still lives.
    pub fn take(&self, address: DeviceAddress) -> Option<(Arc<LocalMemory>, Option<Arc<R>>)> {
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let segment = segments.remove(&address.0)?;
        Some((segment.memory, segment.owner.upgrade()))
    }
}
