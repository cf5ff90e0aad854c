//! Tells whether the calling thread does the work.

use symmem::Communicator;
use symmem::backend::abi::CAPABILITY_LAUNCH;

/// Whether the calling thread itself does the transfers, as on the host backend.
pub(super) fn is_by_caller(communicator: &Communicator) -> bool {
    communicator.capabilities().flags & CAPABILITY_LAUNCH == 0
}
