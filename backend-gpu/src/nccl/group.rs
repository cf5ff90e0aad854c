//! Groups of calls. A thread opens and closes them; closing the outermost group makes all of its calls.

use super::NcclApi;
use super::communicators::Use;
use std::cell::RefCell;
use std::ptr::null_mut;
use std::sync::Arc;
use symmem_core::backend::CallResult;

/// The groups that this thread has open.
struct Group {
    depth: u32,
    uses: Vec<Use>,
}

thread_local! {
    static GROUP: RefCell<Group> = const { RefCell::new(Group { depth: 0, uses: Vec::new() }) };
}

impl NcclApi {
    /// Opens a group of calls on this thread.
    ///
    /// # Errors
    /// The library's failure.
    pub fn group_open(&self) -> CallResult<()> {
        // SAFETY: the function takes no arguments, and the library's group belongs to this thread.
        self.check("ncclGroupStart", unsafe { (self.table.ncclGroupStart)() })?;
        GROUP.with_borrow_mut(|group| group.depth += 1);
        Ok(())
    }

    /// Closes a group. Closing the outermost makes all calls, and blocks until they are on their streams.
    ///
    /// # Errors
    /// The library's failure of any call in the group.
    pub fn group_close(&self) -> CallResult<()> {
        const CALL: &str = "ncclGroupEnd";
        // SAFETY: as above; `GROUP` keeps the communicators with calls in the group in use until it is closed.
        let code = unsafe { (self.table.ncclGroupEnd)() };
        let is_outermost = GROUP.with_borrow_mut(|group| {
            group.depth = group.depth.saturating_sub(1);
            group.depth == 0
        });
        if !is_outermost {
            return self.begun(CALL, code, null_mut());
        }
        let mut result = self.begun(CALL, code, null_mut());
        // One at a time, so that the list is not borrowed during the wait, and keeps its capacity.
        while let Some(begun) = GROUP.with_borrow_mut(|group| group.uses.pop()) {
            result = result.and_then(|()| self.finish(&begun, CALL, code));
        }
        result
    }

    /// Keeps a communicator in use until this thread's group is closed. Returns whether a group is open.
    pub(super) fn join_group(&self, begun: &Use) -> bool {
        GROUP.with_borrow_mut(|group| {
            if group.depth == 0 {
                return false;
            }
            let is_in = |other: &Use| Arc::ptr_eq(&other.communicator, &begun.communicator);
            if !group.uses.iter().any(is_in) {
                group.uses.push(begun.again());
            }
            true
        })
    }
}
