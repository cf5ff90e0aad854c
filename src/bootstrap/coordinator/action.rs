//! The coordinator's input and decisions, in terms of connections.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::bootstrap::reply::Reply;

/// Names a connection of the server.
pub(in crate::bootstrap) type Token = u64;

/// The connection of the rank 0 whose process holds the store.
pub(in crate::bootstrap) const HOST: Token = 0;

/// The file descriptor that came beside a request, if any.
#[derive(Debug)]
pub(in crate::bootstrap) enum SentDescriptor {
    Nothing,
    Descriptor(OwnedFd),
    /// The kernel dropped it.
    Lost,
}

/// An action for the server.
#[derive(Debug)]
pub(in crate::bootstrap) enum Action {
    /// Sends a frame, with descriptors beside it.
    Send {
        to: Token,
        frame: Vec<u8>,
        descriptors: Option<Arc<Vec<OwnedFd>>>,
    },
    /// Stops accepting connections.
    StopListening,
    /// Sends the queue, then ends.
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
