//! Requests of ranks to the store.

use crate::bootstrap::codec::{Reader, Writer};
use crate::bootstrap::frame::{MAX_BODY, MessageError, frame};
use crate::bootstrap::peer::PeerInformation;

/// Version of this protocol; compared at the rendezvous. Version 5 names the ranks that a lost connection may be of. Version
/// 4 tells the key of each rank's node. Version 3 has another handshake over TCP, and other names of Unix
/// sockets for jobs without a secret of their own: so it meets version 2 only at the Unix socket of a job with a secret.
pub(super) const VERSION: u32 = 5;

/// Returns the most bytes that each of `world` ranks may contribute to one all-gather, so that the result fits
/// in a message.
pub(super) fn payload_limit(world: u32) -> usize {
    // A contribution takes 5 bytes more than its payload; tag, deadline and lengths of a request fit in the 1
    // KiB kept free.
    (MAX_BODY - 1024) / world.max(1) as usize - 5
}

/// Most bytes of a tag or a key.
pub(super) const MAX_NAME: usize = 512;

/// Most bytes of a value.
pub(super) const MAX_VALUE: usize = MAX_BODY - 1024;

/// Most bytes of the reason why a rank cannot continue.
pub(super) const MAX_REASON: usize = 64 * 1024;

/// A request to the store. Deadlines are microseconds from the arrival of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Join {
        version: u32,
        world: u32,
        generation: u64,
        peer: PeerInformation,
        deadline: u64,
    },
    /// A join of another version; only the part that never changes was read.
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
    /// The rank cannot continue since another has died or failed.
    Blame {
        rank: u32,
        died: bool,
        reason: String,
    },
    /// The rank is alive, and dead if nothing more is heard from it for so many microseconds; 0 if it will not tell any
    /// more.
    Pulse {
        silence: u64,
    },
}

impl Request {
    /// Returns this request as a frame with `descriptors` file descriptors beside it.
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
                // Version and rank come first in every future version, too.
                body.u32(*version)
                    .u32(peer.rank)
                    .u32(*world)
                    .u64(*generation)
                    .u64(*deadline);
                peer.encode(&mut body);
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
            Self::Pulse { silence } => {
                body.u64(*silence);
                8
            }
            Self::Blame { rank, died, reason } => {
                body.u32(*rank).u8(u8::from(*died)).text(reason);
                9
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
            8 => reader.u64().map(|silence| Self::Pulse { silence }),
            9 => Self::parse_blame(&mut reader),
            _ => return Err(MessageError::UnknownKind(kind)),
        };
        request
            .filter(|request| reader.0.is_empty() && request.keeps_limits())
            .ok_or(MessageError::BadBody(kind))
    }

    /// Returns whether every part is as short as a rank makes it. The store's replies repeat names and reasons, and
    /// must fit in a message too. [`payload_limit`], which depends on the world size, is checked by the store.
    fn keeps_limits(&self) -> bool {
        match self {
            Self::Set { key, value } => key.len() <= MAX_NAME && value.len() <= MAX_VALUE,
            Self::Get { key: name, .. }
            | Self::Add { key: name, .. }
            | Self::AllGather { tag: name, .. } => name.len() <= MAX_NAME,
            Self::Fail { reason } | Self::Blame { reason, .. } => reason.len() <= MAX_REASON,
            Self::Join { .. } | Self::ForeignJoin { .. } | Self::Leave | Self::Pulse { .. } => true,
        }
    }

    fn parse_blame(reader: &mut Reader<'_>) -> Option<Self> {
        let rank = reader.u32()?;
        let died = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let reason = reader.text()?;
        Some(Self::Blame { rank, died, reason })
    }

    fn parse_join(reader: &mut Reader<'_>) -> Option<Self> {
        let (version, rank) = (reader.u32()?, reader.u32()?);
        if version != VERSION {
            return Some(Self::ForeignJoin { version, rank });
        }
        let (world, generation, deadline) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let peer = PeerInformation::parse(reader).filter(|peer| peer.rank == rank)?;
        Some(Self::Join {
            version,
            world,
            generation,
            peer,
            deadline,
        })
    }
}
