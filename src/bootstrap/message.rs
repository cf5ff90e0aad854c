//! The messages of the store, as bytes.
//!
//! A frame is a header of 16 bytes (length of the body, kind, count of file descriptors that travel
//! beside it, number of the request it belongs to) and a body of at most [`MAX_BODY`] bytes. All
//! integers are little-endian; text and byte strings carry their length before them. Parsing is a pure
//! function over bytes: it never panics and never reserves memory that a length merely claims.

use crate::bootstrap::codec::{Reader, Writer};
use crate::bootstrap::process::ProcessIdentity;

/// Version of this protocol; compared at the rendezvous.
pub(super) const VERSION: u32 = 1;

/// Most bytes of a body.
pub(super) const MAX_BODY: usize = 1 << 20;

/// Bytes of a frame's header.
pub(super) const HEADER_BYTES: usize = 16;

/// The number of a message that answers no request.
pub(super) const UNSOLICITED: u64 = 0;

/// Most bytes that each of `world` ranks may give to one all-gather, so that the result is a message.
pub(super) fn payload_limit(world: u32) -> usize {
    // A contribution costs 5 bytes more than its payload; tag, deadline and lengths of a request fit
    // in the 1 KiB kept free.
    (MAX_BODY - 1024) / world.max(1) as usize - 5
}

/// Most bytes of a tag or a key.
pub(super) const MAX_NAME: usize = 512;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("a body of {0} bytes is over the limit of {MAX_BODY}")]
    TooLong(usize),
    #[error("a message of unknown kind {0}")]
    UnknownKind(u16),
    #[error("a message of kind {0} that ends too early, too late or holds an impossible value")]
    BadBody(u16),
}

/// A complete frame at the head of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) request: u64,
    pub(super) kind: u16,
    pub(super) descriptors: u16,
    pub(super) body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame in `bytes`, or `None` if it is not all there yet. It takes
    /// `HEADER_BYTES + body.len()` bytes.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, MessageError> {
        let mut reader = Reader(bytes);
        let (Some(length), Some(kind), Some(descriptors), Some(request)) =
            (reader.u32(), reader.u16(), reader.u16(), reader.u64())
        else {
            return Ok(None);
        };
        let length = length as usize;
        if length > MAX_BODY {
            return Err(MessageError::TooLong(length));
        }
        Ok(reader.take(length).map(|body| Self {
            request,
            kind,
            descriptors,
            body,
        }))
    }
}

/// A frame as bytes. `body` is at most [`MAX_BODY`] long: callers check what users give them.
pub(super) fn frame(request: u64, kind: u16, descriptors: u16, body: &[u8]) -> Vec<u8> {
    debug_assert!(body.len() <= MAX_BODY);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&descriptors.to_le_bytes());
    bytes.extend_from_slice(&request.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A rank as the others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInformation {
    /// The rank.
    pub rank: u32,
    /// The process it is, or is a thread of.
    pub process: ProcessIdentity,
    /// The user it runs as.
    pub uid: u32,
    /// The boot of the machine it runs on: the same on all ranks of a host.
    pub boot_id: String,
}

/// What a rank asks of the store. Deadlines are microseconds from the arrival of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Join {
        version: u32,
        world: u32,
        generation: u64,
        peer: PeerInformation,
        deadline: u64,
    },
    /// A join of another version, of which only the part that never changes was read.
    ForeignJoin {
        version: u32,
        rank: u32,
    },
    Set {
        key: String,
        value: Vec<u8>,
    },
    Get {
        key: String,
        deadline: u64,
    },
    Add {
        key: String,
        amount: i64,
    },
    AllGather {
        tag: String,
        payload: Vec<u8>,
        deadline: u64,
    },
    Leave,
    Fail {
        reason: String,
    },
}

/// A rank's part of an all-gather: its bytes, and whether a descriptor travels beside the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) payload: Vec<u8>,
    pub(super) has_descriptor: bool,
}

/// What the store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// All have joined; ordered by rank.
    Welcome {
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
}

/// Why a request cannot be answered; unsolicited, why no later one will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Died {
        rank: u32,
    },
    Failed {
        rank: u32,
        reason: String,
    },
    Left {
        rank: u32,
    },
    TimedOut {
        missing: Vec<u32>,
    },
    TagMismatch {
        rank: u32,
        tag: String,
    },
    RankTaken {
        rank: u32,
    },
    WorldMismatch {
        rank: u32,
        world: u32,
        expected: u32,
    },
    VersionMismatch {
        rank: u32,
        version: u32,
        expected: u32,
    },
    GenerationMismatch {
        rank: u32,
        generation: u64,
        expected: u64,
    },
    OtherHost {
        rank: u32,
    },
    NotACounter {
        key: String,
    },
    DescriptorLost {
        rank: u32,
    },
}

impl Request {
    /// This request as a frame with `descriptors` file descriptors beside it.
    pub(super) fn encode(&self, request: u64, descriptors: u16) -> Vec<u8> {
        let mut body = Writer::default();
        let kind = match self {
            Self::Join {
                version,
                world,
                generation,
                peer,
                deadline,
            } => {
                // Version and rank come first in every version there will be.
                body.u32(*version)
                    .u32(peer.rank)
                    .u32(*world)
                    .u64(*generation)
                    .u64(*deadline)
                    .peer(peer);
                1
            }
            Self::ForeignJoin { version, rank } => {
                body.u32(*version).u32(*rank);
                1
            }
            Self::Set { key, value } => {
                body.text(key).bytes(value);
                2
            }
            Self::Get { key, deadline } => {
                body.text(key).u64(*deadline);
                3
            }
            Self::Add { key, amount } => {
                body.text(key).u64(*amount as u64);
                4
            }
            Self::AllGather {
                tag,
                payload,
                deadline,
            } => {
                body.text(tag).bytes(payload).u64(*deadline);
                5
            }
            Self::Leave => 6,
            Self::Fail { reason } => {
                body.text(reason);
                7
            }
        };
        frame(request, kind, descriptors, &body.0)
    }

    pub(super) fn parse(kind: u16, body: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(body);
        let request = match kind {
            1 => match Self::parse_join(&mut reader) {
                Some(foreign @ Self::ForeignJoin { .. }) => return Ok(foreign),
                join => join,
            },
            2 => reader
                .pair(Reader::text, Reader::bytes)
                .map(|(key, value)| Self::Set { key, value }),
            3 => reader
                .pair(Reader::text, Reader::u64)
                .map(|(key, deadline)| Self::Get { key, deadline }),
            4 => reader
                .pair(Reader::text, Reader::u64)
                .map(|(key, amount)| Self::Add {
                    key,
                    amount: amount as i64,
                }),
            5 => reader
                .pair(Reader::text, Reader::bytes)
                .and_then(|(tag, payload)| {
                    Some(Self::AllGather {
                        tag,
                        payload,
                        deadline: reader.u64()?,
                    })
                }),
            6 => Some(Self::Leave),
            7 => reader.text().map(|reason| Self::Fail { reason }),
            _ => return Err(MessageError::UnknownKind(kind)),
        };
        request
            .filter(|_| reader.0.is_empty())
            .ok_or(MessageError::BadBody(kind))
    }

    fn parse_join(reader: &mut Reader<'_>) -> Option<Self> {
        let (version, rank) = (reader.u32()?, reader.u32()?);
        if version != VERSION {
            return Some(Self::ForeignJoin { version, rank });
        }
        let (world, generation, deadline) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let peer = reader.peer().filter(|peer| peer.rank == rank)?;
        Some(Self::Join {
            version,
            world,
            generation,
            peer,
            deadline,
        })
    }
}

impl Reply {
    /// This reply to `request` as a frame with `descriptors` file descriptors beside it.
    pub(super) fn encode(&self, request: u64, descriptors: u16) -> Vec<u8> {
        let mut body = Writer::default();
        let kind = match self {
            Self::Welcome { peers } => {
                body.u32(peers.len() as u32);
                for peer in peers {
                    body.peer(peer);
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
        };
        frame(request, kind, descriptors, &body.0)
    }

    pub(super) fn parse(kind: u16, body: &[u8]) -> Result<Self, MessageError> {
        let mut reader = Reader(body);
        let reply = match kind {
            33 => reader
                .list(Reader::peer)
                .map(|peers| Self::Welcome { peers }),
            34 => reader.text().map(|name| Self::Redirect { name }),
            35 => Some(Self::Done),
            36 => reader.bytes().map(|bytes| Self::Value { bytes }),
            37 => reader.u64().map(|value| Self::Sum {
                value: value as i64,
            }),
            38 => reader
                .list(Reader::part)
                .map(|parts| Self::Gathered { parts }),
            39 => Failure::parse(&mut reader).map(Self::Failure),
            _ => return Err(MessageError::UnknownKind(kind)),
        };
        reply
            .filter(|_| reader.0.is_empty())
            .ok_or(MessageError::BadBody(kind))
    }
}

impl Failure {
    fn encode(&self, body: &mut Writer) {
        match self {
            Self::Died { rank } => body.u8(1).u32(*rank),
            Self::Failed { rank, reason } => body.u8(2).u32(*rank).text(reason),
            Self::Left { rank } => body.u8(3).u32(*rank),
            Self::TimedOut { missing } => {
                body.u8(4).u32(missing.len() as u32);
                missing.iter().fold(body, |body, rank| body.u32(*rank))
            }
            Self::TagMismatch { rank, tag } => body.u8(5).u32(*rank).text(tag),
            Self::RankTaken { rank } => body.u8(6).u32(*rank),
            Self::WorldMismatch {
                rank,
                world,
                expected,
            } => body.u8(7).u32(*rank).u32(*world).u32(*expected),
            Self::VersionMismatch {
                rank,
                version,
                expected,
            } => body.u8(8).u32(*rank).u32(*version).u32(*expected),
            Self::GenerationMismatch {
                rank,
                generation,
                expected,
            } => body.u8(9).u32(*rank).u64(*generation).u64(*expected),
            Self::OtherHost { rank } => body.u8(10).u32(*rank),
            Self::NotACounter { key } => body.u8(11).text(key),
            Self::DescriptorLost { rank } => body.u8(12).u32(*rank),
        };
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match reader.u8()? {
            1 => Self::Died {
                rank: reader.u32()?,
            },
            2 => Self::Failed {
                rank: reader.u32()?,
                reason: reader.text()?,
            },
            3 => Self::Left {
                rank: reader.u32()?,
            },
            4 => Self::TimedOut {
                missing: reader.list(Reader::u32)?,
            },
            5 => Self::TagMismatch {
                rank: reader.u32()?,
                tag: reader.text()?,
            },
            6 => Self::RankTaken {
                rank: reader.u32()?,
            },
            7 => Self::WorldMismatch {
                rank: reader.u32()?,
                world: reader.u32()?,
                expected: reader.u32()?,
            },
            8 => Self::VersionMismatch {
                rank: reader.u32()?,
                version: reader.u32()?,
                expected: reader.u32()?,
            },
            9 => Self::GenerationMismatch {
                rank: reader.u32()?,
                generation: reader.u64()?,
                expected: reader.u64()?,
            },
            10 => Self::OtherHost {
                rank: reader.u32()?,
            },
            11 => Self::NotACounter {
                key: reader.text()?,
            },
            12 => Self::DescriptorLost {
                rank: reader.u32()?,
            },
            _ => return None,
        })
    }
}

impl Writer {
    fn peer(&mut self, peer: &PeerInformation) -> &mut Self {
        let ProcessIdentity {
            pid,
            start_time,
            namespace,
        } = peer.process;
        self.u32(peer.rank)
            .u32(pid)
            .u64(start_time)
            .u64(namespace)
            .u32(peer.uid)
            .text(&peer.boot_id)
    }
}

impl Reader<'_> {
    fn part(&mut self) -> Option<Part> {
        let has_descriptor = match self.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Part {
            payload: self.bytes()?,
            has_descriptor,
        })
    }

    fn peer(&mut self) -> Option<PeerInformation> {
        let rank = self.u32()?;
        let process = ProcessIdentity {
            pid: self.u32()?,
            start_time: self.u64()?,
            namespace: self.u64()?,
        };
        Some(PeerInformation {
            rank,
            process,
            uid: self.u32()?,
            boot_id: self.text()?,
        })
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
