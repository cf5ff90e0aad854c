//! What went wrong with a peer, before the rank that noticed is known.

use crate::base::error::{Error, NoAnswer};
use crate::base::placement::Placement;
use std::sync::Arc;
use std::time::Duration;
use symmem_ucx::Failure;

/// The failure of a command, or of a connection.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The rank of another node that it concerns.
    pub peer: usize,
    /// symmem's operation.
    pub operation: &'static str,
    /// The bytes concerned, if any.
    pub bytes: Option<u64>,
    /// The cause.
    pub cause: Cause,
}

/// The cause of a [`Fault`].
#[derive(Clone, Debug)]
pub enum Cause {
    /// A call of UCX, or an operation, failed.
    Ucx(Failure),
    /// The peer has not answered for this long.
    Silent(Duration),
    /// A barrier's message did not come: the epoch expected and the one seen.
    Barrier {
        channel: u32,
        expected: u32,
        seen: u32,
        waited: Duration,
    },
    /// The peer sent another number of bytes than this rank expects.
    Length { expected: u64, seen: u64 },
    /// The peer left the communicator in good order.
    Left,
    /// A call of this rank's backend, for the peer, failed.
    Backend(crate::backend::Failure),
    /// The peer sent a message that makes no sense.
    Text(String),
}

impl Fault {
    /// Makes the failure of a connection that no command is using.
    pub fn of_connection(peer: usize, failure: Failure) -> Self {
        Self {
            peer,
            operation: "connection",
            bytes: None,
            cause: Cause::Ucx(failure),
        }
    }

    /// Makes the error of `rank`, which noticed it.
    pub fn into_error(self, rank: usize, placement: &Placement) -> Error {
        let Self {
            peer,
            operation,
            bytes,
            cause,
        } = self;
        let failure: Arc<dyn std::error::Error + Send + Sync> = match cause {
            Cause::Barrier {
                channel,
                expected,
                seen,
                waited,
            } => {
                return Error::Timeout {
                    rank,
                    peer,
                    operation,
                    channel,
                    expected,
                    seen,
                    waited: Some(waited),
                };
            }
            Cause::Length { expected, seen } => {
                return Error::Mismatch {
                    rank,
                    peer,
                    operation,
                    what: "the number of bytes",
                    mine: expected.to_string(),
                    theirs: seen.to_string(),
                };
            }
            Cause::Backend(failure) => {
                let error = Error::backend(rank, operation, failure);
                return error.about(Some(peer), bytes.unwrap_or_default());
            }
            Cause::Ucx(failure) => Arc::new(failure),
            Cause::Silent(waited) => Arc::new(NoAnswer { waited }),
            Cause::Left => Arc::new(Text("the rank has left the communicator".into())),
            Cause::Text(text) => Arc::new(Text(text)),
        };
        Error::Network {
            rank,
            peer,
            node: placement.node(peer),
            bytes,
            operation,
            failure,
        }
    }
}

/// A failure that is only a text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Text(String);
