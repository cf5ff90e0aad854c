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
    pub(crate) _worker: Arc<WorkerShared>,
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
