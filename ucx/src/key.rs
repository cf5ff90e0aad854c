//! UCX's keys of peers' memory.

use crate::context::ContextShared;
use crate::table::Handle;
use std::sync::Arc;

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
