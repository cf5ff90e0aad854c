//! What the coordinator is told and what it decides, in terms of connections.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::bootstrap::reply::Reply;

/// Names a connection of the server.
pub(in crate::bootstrap) type Token = u64;

/// The connection of the rank 0 whose process holds the store.
pub(in crate::bootstrap) const HOST: Token = 0;

/// What came beside a request.
#[derive(Debug)]
pub(in crate::bootstrap) enum Beside {
    Nothing,
    Descriptor(OwnedFd),
    /// The kernel dropped it.
    Lost,
}

/// What the server is to do.
#[derive(Debug)]
pub(in crate::bootstrap) enum Action {
    /// Send a frame, with descriptors beside it.
    Send {
        to: Token,
        frame: Vec<u8>,
        descriptors: Option<Arc<Vec<OwnedFd>>>,
    },
    /// Accept nobody any more.
    StopListening,
    /// Send what is queued, then end.
    Finish,
}

impl Action {
    /// Sends `reply` to `request`, without descriptors.
    pub(super) fn reply(to: Token, request: u64, reply: &Reply) -> Self {
        Self::Send {
            to,
            frame: reply.encode(request, 0),
            descriptors: None,
        }
    }
}
