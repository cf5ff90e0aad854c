//! What a queue keeps for its commands to ranks of other nodes.

use crate::network::lane::Lane;
use crate::network::section::Section;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What a queue has asked the network for.
#[derive(Default)]
pub struct Remote {
    /// The queue's commands; none before the first.
    pub lane: OnceLock<Arc<Lane>>,
    /// The section that is being recorded.
    pub section: Mutex<Option<Arc<Section>>>,
    /// Whether the program may enqueue on the stream without this library, which then cannot make the stream wait later.
    exposed: AtomicBool,
    /// Whether later work does not wait for commands, unless a call says so.
    overlapping: AtomicBool,
}

/// While it exists, work that is enqueued does not wait for the queue's earlier commands: see [`Queue::overlap`].
pub struct Overlap<'q>(&'q Remote);

impl<'q> Overlap<'q> {
    /// Begins.
    pub fn of(remote: &'q Remote) -> Self {
        remote.overlapping.store(true, Ordering::Relaxed);
        Self(remote)
    }
}

impl Drop for Overlap<'_> {
    fn drop(&mut self) {
        self.0.overlapping.store(false, Ordering::Relaxed);
    }
}

impl Remote {
    /// Returns whether later work does not wait for commands.
    pub fn is_overlapping(&self) -> bool {
        self.overlapping.load(Ordering::Relaxed)
    }

    /// Returns whether the program knows the stream's handle.
    pub fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }

    /// Notes that the program knows the stream's handle.
    pub fn expose(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }
}
