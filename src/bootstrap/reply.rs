//! The store's replies.

use crate::bootstrap::codec::{Reader, Writer};
use crate::bootstrap::failure::Failure;
use crate::bootstrap::frame::{MessageError, frame};
use crate::bootstrap::peer::PeerInformation;

/// A rank's part of an all-gather: its bytes, and whether a descriptor travels beside the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) payload: Vec<u8>,
    pub(super) has_descriptor: bool,
}

impl Part {
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let has_descriptor = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self {
            payload: reader.bytes()?,
            has_descriptor,
        })
    }
}

/// The store's replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// All ranks have joined; in rank order.
    Welcome {
        /// Whether their nodes may differ: then this connection stays the rank's, whatever carries it.
        may_span_nodes: bool,
        peers: Vec<PeerInformation>,
    },
    /// Join again at the abstract Unix socket of this name.
    Redirect {
        name: String,
    },
    Done,
    Value {
        bytes: Vec<u8>,
    },
    Sum {
        value: i64,
    },
    Gathered {
        parts: Vec<Part>,
    },
    Failure(Failure),
    /// Answers a rank's pulse.
    Pulse,
}

impl Reply {
    /// Returns this reply to `request` as a frame with `descriptors` file descriptors beside it.
    pub(super) fn encode(&self, request: u64, descriptors: u16) -> Vec<u8> {
        let mut body = Writer::default();
        let kind = match self {
            Self::Welcome {
                may_span_nodes,
                peers,
            } => {
                body.u8(u8::from(*may_span_nodes)).u32(peers.len() as u32);
                for peer in peers {
                    peer.encode(&mut body);
                }
                33
            }
            Self::Redirect { name } => {
                body.text(name);
                34
            }
            Self::Done => 35,
            Self::Value { bytes } => {
                body.bytes(bytes);
                36
            }
            Self::Sum { value } => {
                body.u64(*value as u64);
                37
            }
            Self::Gathered { parts } => {
                body.u32(parts.len() as u32);
                for part in parts {
                    body.u8(u8::from(part.has_descriptor)).bytes(&part.payload);
                }
                38
            }
            Self::Failure(failure) => {
                failure.encode(&mut body);
                39
            }
            Self::Pulse => 40,
        };
        frame(request, kind, descriptors, &body.0)
    }

    pub(super) fn parse(kind: u16, body: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(body);
        let reply = match kind {
            33 => Self::parse_welcome(&mut reader),
            34 => reader.text().map(|name| Self::Redirect { name }),
            35 => Some(Self::Done),
            36 => reader.bytes().map(|bytes| Self::Value { bytes }),
            37 => reader.u64().map(|value| Self::Sum {
                value: value as i64,
            }),
            38 => reader
                .list(Part::parse)
                .map(|parts| Self::Gathered { parts }),
            39 => Failure::parse(&mut reader).map(Self::Failure),
            40 => Some(Self::Pulse),
            _ => return Err(MessageError::UnknownKind(kind)),
        };
        reply
            .filter(|_| reader.0.is_empty())
            .ok_or(MessageError::BadBody(kind))
    }

    fn parse_welcome(reader: &mut Reader<'_>) -> Option<Self> {
        let may_span_nodes = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self::Welcome {
            may_span_nodes,
            peers: reader.list(PeerInformation::parse)?,
        })
    }
}
