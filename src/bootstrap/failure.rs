//! Failures of the store, as they travel from rank 0 to the others.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::base::bootstrap_error::BootstrapError;
use crate::bootstrap::codec::{Reader, Writer};

/// The reason why a request cannot be answered; in an unsolicited message, the reason why no later one will be.
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
    ConnectionLost {
        connection: String,
        /// The ranks that may be at the other end from rank 0.
        ranks: Vec<u32>,
        reason: String,
    },
}

impl Failure {
    /// Returns what an end of `connection`, over TCP, or `error` of it means. Anyone in between can cut and alter it, so
    /// the rank at the other end, one of `ranks`, is not to blame.
    pub(super) fn of_connection(connection: String, ranks: Vec<u32>, error: Option<Errno>) -> Self {
        let reason = match error {
            Some(Errno::BADMSG) => "carried bytes that its other end did not send".into(),
            None | Some(Errno::CONNRESET | Errno::PIPE) => "was cut before its time".into(),
            Some(error) => format!("failed ({})", io::Error::from(error)),
        };
        Self::ConnectionLost {
            connection,
            ranks,
            reason,
        }
    }

    pub(super) fn encode(&self, body: &mut Writer) {
        match self {
            Self::Died { rank } => body.u8(1).u32(*rank),
            Self::Failed { rank, reason } => body.u8(2).u32(*rank).text(reason),
            Self::Left { rank } => body.u8(3).u32(*rank),
            Self::TimedOut { missing } => write_ranks(body.u8(4), missing),
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
            Self::ConnectionLost {
                connection,
                ranks,
                reason,
            } => write_ranks(body.u8(13).text(connection).text(reason), ranks),
        };
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
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
            13 => Self::ConnectionLost {
                connection: reader.text()?,
                reason: reader.text()?,
                ranks: reader.list(Reader::u32)?,
            },
            _ => return None,
        })
    }

    /// Returns this failure, reported by rank 0, as the error of `rank`, which waited `elapsed` for `awaited`.
    pub(super) fn into_error(self, rank: u32, awaited: &str, elapsed: Duration) -> BootstrapError {
        let awaited = awaited.to_owned();
        match self {
            Self::Died { rank: peer } => BootstrapError::PeerDied { peer, awaited },
            Self::Failed { rank: peer, reason } => BootstrapError::PeerFailed { peer, reason },
            Self::Left { rank: peer } => BootstrapError::PeerLeft { peer, awaited },
            Self::TimedOut { missing } => BootstrapError::Timeout {
                rank,
                awaited,
                missing,
                elapsed,
                source: None,
            },
            Self::TagMismatch {
                rank: peer,
                tag: peer_tag,
            } => BootstrapError::TagMismatch {
                rank,
                awaited,
                peer,
                peer_tag,
            },
            Self::RankTaken { rank } => BootstrapError::RankTaken { rank },
            Self::WorldMismatch {
                rank: peer,
                world,
                expected,
            } => BootstrapError::WorldMismatch {
                peer,
                world,
                expected,
            },
            Self::VersionMismatch {
                rank: peer,
                version,
                expected,
            } => BootstrapError::VersionMismatch {
                peer,
                version,
                expected,
            },
            Self::GenerationMismatch {
                rank: peer,
                generation,
                expected,
            } => BootstrapError::GenerationMismatch {
                peer,
                generation,
                expected,
            },
            Self::OtherHost { rank } => BootstrapError::OtherHost { rank },
            Self::NotACounter { key } => BootstrapError::NotACounter { rank, key },
            Self::DescriptorLost { rank: owner } => {
                BootstrapError::DescriptorLost { owner, receiver: 0 }
            }
            Self::ConnectionLost {
                connection,
                ranks,
                reason,
            } => BootstrapError::ConnectionLost {
                rank,
                connection,
                ranks,
                reason,
            },
        }
    }
}

fn write_ranks<'w>(body: &'w mut Writer, ranks: &[u32]) -> &'w mut Writer {
    let body = body.u32(ranks.len() as u32);
    ranks.iter().fold(body, |body, rank| body.u32(*rank))
}
