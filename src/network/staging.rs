//! What GPU memory is sent and asked for with: a stream, pinned memory, and its free slots.

use super::copies::{Copies, Ticket};
use super::fault::{Cause, Fault};
use super::pinned::{Pinned, Pool};
use crate::backend::abi::DeviceAddress;
use crate::backend::{CallResult, Failure};

/// What this rank sends and asks for GPU memory with.
pub struct Staging {
    /// The stream of copies between GPU memory and pinned memory.
    pub copies: Copies,
    /// The pinned memory.
    pub pinned: Pinned,
    /// Slots for small messages, and for words.
    pub small: Pool,
    /// Slots for pieces on their way to peers.
    pub sending: Pool,
    /// Slots for pieces that peers send.
    pub getting: Pool,
}

impl Staging {
    /// Starts to copy GPU memory into a slot.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Safety
    /// The memory is live until the ticket is done; the slot is the caller's, and large enough.
    pub unsafe fn load(&mut self, slot: u64, from: u64, bytes: u64) -> CallResult<Ticket> {
        let to = self.pinned.device(slot);
        // SAFETY: guaranteed by the caller.
        unsafe { self.copies.copy(to, DeviceAddress(from), bytes) }?;
        self.copies.count()
    }

    /// Starts to copy a slot into GPU memory.
    ///
    /// # Errors
    /// The backend's.
    ///
    /// # Safety
    /// As for [`Staging::load`].
    pub unsafe fn store(&mut self, to: u64, slot: u64, bytes: u64) -> CallResult<Ticket> {
        let from = self.pinned.device(slot);
        // SAFETY: guaranteed by the caller.
        unsafe { self.copies.copy(DeviceAddress(to), from, bytes) }?;
        self.copies.count()
    }
}

/// Makes the fault of a failed call of the backend for a peer.
pub fn of_backend(peer: usize, failure: Failure) -> Fault {
    Fault {
        peer,
        operation: "copy through pinned memory",
        bytes: None,
        cause: Cause::Backend(failure),
    }
}
