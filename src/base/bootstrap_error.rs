//! Errors before and while ranks meet.

use crate::base::error_kind::ErrorKind;
use std::io;
use std::time::Duration;

/// An error of rendezvous, of the store or of the launch environment.
///
/// A variant names the ranks involved, if they are known; most messages also say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// A launch variable has an unusable value.
    #[error("{name}={value:?} is not {expected}; correct the variable or launch with `symmem run`")]
    BadVariable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// Only some of a launcher's variables are set.
    #[error("{present} is set but {missing} is not; set both, or neither for a world of one rank")]
    MissingVariable {
        /// The variable that was not found.
        missing: &'static str,
        /// The variable that is set.
        present: &'static str,
    },
    /// A rank outside of its world.
    #[error(
        "rank {rank} is outside a world of {world} (from {origin}); ranks count from 0, and a world has 1 to {most} of \
         them on one node and at most {all} on several",
        most = crate::backend::abi::MAX_RANKS,
        all = crate::base::limits::MAX_WORLD
    )]
    RankOutsideWorld {
        /// The rank.
        rank: u32,
        /// The world size.
        world: u32,
        /// The launcher that set them.
        origin: &'static str,
    },
    /// The launcher spread the ranks over more than one host, and there is no address at which they could meet.
    #[error(
        "the world has {world} ranks but only {local_world} of them run on this host, and nothing says where ranks on \
         several hosts meet; set SYMMEM_RENDEZVOUS to host:port of rank 0's host and SYMMEM_SECRET to 64 hexadecimal \
         digits, the same on all ranks"
    )]
    SeveralHosts {
        /// Ranks in all.
        world: u32,
        /// Ranks on this host.
        local_world: u32,
    },
    /// A rank came to the rendezvous from another host than rank 0's, whose variables tell of one host only.
    #[error(
        "rank {rank} runs on another host than rank 0, whose launch variables place all ranks on one host; set \
         SYMMEM_LOCAL_RANK and SYMMEM_LOCAL_WORLD to each rank's number on its host and the number of ranks there"
    )]
    OtherHost {
        /// The rank on another host.
        rank: u32,
    },
    /// Nothing tells this job apart from others on the host.
    #[error(
        "{origin} gives no job name, by which the ranks find each other; set SYMMEM_JOB to the same string on all \
         ranks, or launch with `symmem run`"
    )]
    JobUnknown {
        /// The launcher that was recognized.
        origin: &'static str,
    },
    /// A TCP rendezvous without a secret would let in any user of the host.
    #[error(
        "the rendezvous at {address} needs a secret: set SYMMEM_SECRET to the same 64 hexadecimal digits on all \
         ranks, or unset SYMMEM_RENDEZVOUS"
    )]
    SecretMissing {
        /// The address requested.
        address: String,
    },
    /// The rendezvous is at `host:port`, and this program was built without TCP.
    #[error(
        "the rendezvous at {address} needs TCP, and this program was built without the feature `tcp` of symmem; build \
         it with that feature, or unset SYMMEM_RENDEZVOUS to meet over a Unix socket"
    )]
    TcpNotBuilt {
        /// The address requested.
        address: String,
    },
    /// The user's secret file, by which ranks without `SYMMEM_SECRET` meet, exists and cannot be used.
    #[error(
        "rank {rank}: the secret file {path} cannot be used; make it a file of your own with mode 0600 and 64 \
         hexadecimal digits, or remove it so that the next rank makes it anew, or set SYMMEM_SECRET"
    )]
    SecretFile {
        /// This rank.
        rank: u32,
        /// The file.
        path: String,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// The process that listens at the rendezvous is not this job's rank 0: it does not know the secret or the
    /// job. Over TCP, the handshake may have been altered on its way instead.
    #[error(
        "rank {rank}: the listener at {address} did not prove to be rank 0 of this job; another job uses the \
         address, SYMMEM_SECRET differs between ranks, or something between them altered the handshake"
    )]
    WrongSecret {
        /// This rank.
        rank: u32,
        /// The address it connected to; over TCP, both ends of the connection too.
        address: String,
    },
    /// A connection over TCP by which a rank reached rank 0 was cut or altered. Anyone on its way can do that, so no rank
    /// is to blame; nothing that was altered has been used.
    #[error(
        "rank {rank}: the connection {connection}, by which {} reached rank 0, {reason}; see the output of the other \
         ranks for one that ended, and check what carries the connection",
        name_one_of(ranks)
    )]
    ConnectionLost {
        /// This rank, which may be at neither end.
        rank: u32,
        /// The addresses of the connection's ends, as the rank that noticed sees them.
        connection: String,
        /// The rank at the end that is not rank 0's; several if it had not told its number, namely all that had not
        /// joined.
        ranks: Vec<u32>,
        /// What happened to it.
        reason: String,
    },
    /// The rendezvous belongs to another user.
    #[error(
        "rank {rank}: the listener at {address} belongs to another user (ID {uid}); run all ranks as one user, or \
         choose another SYMMEM_JOB, or set XDG_RUNTIME_DIR to a folder of your own, whose secret file makes a name \
         that no other user can take first"
    )]
    ForeignUser {
        /// This rank.
        rank: u32,
        /// The address it connected to.
        address: String,
        /// The user ID of the listener.
        uid: u32,
    },
    /// A deadline passed.
    #[error(
        "rank {rank}: timed out after {elapsed:?} waiting for {awaited}{}; check the output of the other ranks, or \
         raise the deadline",
        name_missing(missing)
    )]
    Timeout {
        /// This rank.
        rank: u32,
        /// The event awaited: a collective's tag, a key, the rendezvous.
        awaited: String,
        /// Ranks that did not come; empty if no particular rank was awaited.
        missing: Vec<u32>,
        /// Time waited.
        elapsed: Duration,
        /// The system's error at the last attempt, if the wait was a series of attempts.
        source: Option<io::Error>,
    },
    /// A rank ended without leaving.
    #[error(
        "rank {peer} died{}; see its output for the reason, then restart the job or rebuild without it",
        name_awaited(awaited)
    )]
    PeerDied {
        /// The rank that died.
        peer: u32,
        /// The event that this rank awaited, if any.
        awaited: String,
    },
    /// A rank reported that it cannot continue.
    #[error("rank {peer} failed: {reason}; see the error on rank {peer}")]
    PeerFailed {
        /// The rank that failed.
        peer: u32,
        /// Its own error message; or why rank 0 closed its connection.
        reason: String,
    },
    /// A rank has left the job in good order and cannot take part any more.
    #[error(
        "rank {peer} left the job{}; all ranks must make the same calls before any rank leaves",
        name_awaited(awaited)
    )]
    PeerLeft {
        /// The rank that left.
        peer: u32,
        /// The event that this rank awaited.
        awaited: String,
    },
    /// All ranks wait, but not all for the same collective, so none could ever complete.
    #[error(
        "rank {rank} waits in {awaited} while rank {peer} waits in collective {peer_tag:?}; make the same calls in \
         the same order on all ranks"
    )]
    TagMismatch {
        /// This rank.
        rank: u32,
        /// The collective that it waits for.
        awaited: String,
        /// A rank in another collective.
        peer: u32,
        /// The tag of that rank's collective.
        peer_tag: String,
    },
    /// Two processes or threads claim one rank.
    #[error(
        "two processes or threads joined as rank {rank}; give each rank its own number, and each job its own \
         SYMMEM_JOB"
    )]
    RankTaken {
        /// The rank claimed twice.
        rank: u32,
    },
    /// A rank has another world size.
    #[error(
        "rank {peer} was started with a world size of {world}, rank 0 with {expected}; launch all ranks with the \
         same world size"
    )]
    WorldMismatch {
        /// The rank that differs.
        peer: u32,
        /// Its world size.
        world: u32,
        /// Rank 0's world size.
        expected: u32,
    },
    /// A rank runs another version of the protocol.
    #[error(
        "rank {peer} uses version {version} of the bootstrap protocol, rank 0 version {expected}; run the same \
         build of symmem on all ranks"
    )]
    VersionMismatch {
        /// The rank that differs.
        peer: u32,
        /// Its version.
        version: u32,
        /// Rank 0's version.
        expected: u32,
    },
    /// A rank is at another generation of the job.
    #[error(
        "rank {peer} is at generation {generation} of the job, rank 0 at {expected}; rebuild on all survivors \
         together, or set the same SYMMEM_GENERATION on all ranks"
    )]
    GenerationMismatch {
        /// The rank that differs.
        peer: u32,
        /// Its generation.
        generation: u64,
        /// Rank 0's generation.
        expected: u64,
    },
    /// This rank left the rendezvous, since a rank that was to come has ended or given up.
    #[error(
        "rank {rank}: the rendezvous was canceled, since a rank that was to join has ended or given up; see that \
         rank's output for the reason, then restart the job"
    )]
    CalledOff {
        /// This rank.
        rank: u32,
    },
    /// This process is a fork of the one that met the other ranks.
    #[error(
        "rank {rank}: process {} is a fork of process {owner}, and only process {owner} can use its connection to the \
         other ranks; fork before you connect, or start a program in the fork",
        std::process::id()
    )]
    Forked {
        /// The rank of the process that connected.
        rank: u32,
        /// The number of that process.
        owner: u32,
    },
    /// More bytes than a message can carry.
    #[error(
        "rank {rank}: {what} of {size} bytes exceeds the limit of {limit} bytes; shorten it, or divide data among \
         several calls"
    )]
    TooLarge {
        /// This rank.
        rank: u32,
        /// The data to send.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The key holds a value that is not a counter.
    #[error(
        "rank {rank}: the value of key {key:?} is not a counter (8 bytes); use another key for the counter"
    )]
    NotACounter {
        /// This rank.
        rank: u32,
        /// The key.
        key: String,
    },
    /// The kernel dropped file descriptors because a process was at its limit.
    #[error(
        "a file descriptor of rank {owner} did not arrive at rank {receiver}, whose process is at its limit of open \
         files; raise `ulimit -n`"
    )]
    DescriptorLost {
        /// The rank that owns the descriptor.
        owner: u32,
        /// The rank whose process could not receive it.
        receiver: u32,
    },
    /// Bytes that are not a message of this protocol.
    #[error(
        "rank {rank} received a malformed message from rank 0 ({reason}); run the same build of symmem on all ranks"
    )]
    Malformed {
        /// This rank.
        rank: u32,
        /// The part that is malformed.
        reason: String,
    },
    /// A system call failed.
    #[error("rank {rank}: {call} failed: {source}")]
    System {
        /// This rank.
        rank: u32,
        /// The call and its purpose.
        call: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

fn name_missing(missing: &[u32]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!("; rank {one} did not arrive"),
        many => format!("; ranks {many:?} did not arrive"),
    }
}

/// Names the rank of which it is known that it is one of `ranks`.
fn name_one_of(ranks: &[u32]) -> String {
    match ranks {
        [] => "a rank".to_owned(),
        [one] => format!("rank {one}"),
        many => format!("one of ranks {many:?}"),
    }
}

fn name_awaited(awaited: &str) -> String {
    if awaited.is_empty() {
        String::new()
    } else {
        format!(" (noticed while waiting for {awaited})")
    }
}

impl BootstrapError {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::BadVariable { .. }
            | Self::MissingVariable { .. }
            | Self::RankOutsideWorld { .. }
            | Self::JobUnknown { .. }
            | Self::SecretFile { .. }
            | Self::SecretMissing { .. } => ErrorKind::Environment,
            Self::SeveralHosts { .. } | Self::OtherHost { .. } | Self::TcpNotBuilt { .. } => {
                ErrorKind::Unsupported
            }
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::PeerDied { .. } => ErrorKind::PeerDied,
            Self::PeerFailed { .. } => ErrorKind::PeerFailed,
            Self::PeerLeft { .. } => ErrorKind::PeerLeft,
            Self::Forked { .. } => ErrorKind::Forked,
            Self::TagMismatch { .. }
            | Self::WorldMismatch { .. }
            | Self::VersionMismatch { .. }
            | Self::GenerationMismatch { .. } => ErrorKind::Mismatch,
            Self::TooLarge { .. } | Self::NotACounter { .. } => ErrorKind::InvalidArgument,
            Self::System { .. } => ErrorKind::System,
            Self::WrongSecret { .. }
            | Self::ConnectionLost { .. }
            | Self::ForeignUser { .. }
            | Self::RankTaken { .. }
            | Self::CalledOff { .. }
            | Self::DescriptorLost { .. }
            | Self::Malformed { .. } => ErrorKind::Bootstrap,
        }
    }

    /// Returns the error of a store among `members` with ranks of the world in place of their numbers there.
    pub(crate) fn among(mut self, members: &[u32]) -> Self {
        let name = |rank: &mut u32| {
            if let Some(&member) = members.get(*rank as usize) {
                *rank = member;
            }
        };
        match &mut self {
            Self::Timeout {
                rank,
                missing: others,
                ..
            }
            | Self::ConnectionLost {
                rank,
                ranks: others,
                ..
            } => {
                name(rank);
                others.iter_mut().for_each(name);
            }
            Self::TagMismatch { rank, peer, .. } => {
                name(rank);
                name(peer);
            }
            Self::DescriptorLost { owner, receiver } => {
                name(owner);
                name(receiver);
            }
            Self::RankOutsideWorld { rank, .. }
            | Self::OtherHost { rank }
            | Self::SecretFile { rank, .. }
            | Self::WrongSecret { rank, .. }
            | Self::ForeignUser { rank, .. }
            | Self::RankTaken { rank }
            | Self::CalledOff { rank }
            | Self::Forked { rank, .. }
            | Self::TooLarge { rank, .. }
            | Self::NotACounter { rank, .. }
            | Self::Malformed { rank, .. }
            | Self::System { rank, .. }
            | Self::PeerDied { peer: rank, .. }
            | Self::PeerFailed { peer: rank, .. }
            | Self::PeerLeft { peer: rank, .. }
            | Self::WorldMismatch { peer: rank, .. }
            | Self::VersionMismatch { peer: rank, .. }
            | Self::GenerationMismatch { peer: rank, .. } => name(rank),
            Self::BadVariable { .. }
            | Self::MissingVariable { .. }
            | Self::SeveralHosts { .. }
            | Self::JobUnknown { .. }
            | Self::SecretMissing { .. }
            | Self::TcpNotBuilt { .. } => {}
        }
        self
    }

    /// Returns the rank that failed or noticed, if it is known.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::RankOutsideWorld { rank, .. }
            | Self::SecretFile { rank, .. }
            | Self::WrongSecret { rank, .. }
            | Self::ConnectionLost { rank, .. }
            | Self::ForeignUser { rank, .. }
            | Self::Timeout { rank, .. }
            | Self::TagMismatch { rank, .. }
            | Self::CalledOff { rank }
            | Self::Forked { rank, .. }
            | Self::TooLarge { rank, .. }
            | Self::NotACounter { rank, .. }
            | Self::Malformed { rank, .. }
            | Self::System { rank, .. } => Some(*rank as usize),
            Self::DescriptorLost { receiver, .. } => Some(*receiver as usize),
            _ => None,
        }
    }

    /// Returns the rank concerned; the first of several that were awaited.
    pub fn peer(&self) -> Option<usize> {
        match self {
            Self::OtherHost { rank } | Self::RankTaken { rank } => Some(*rank as usize),
            Self::Timeout { missing, .. } => missing.first().map(|&rank| rank as usize),
            Self::PeerDied { peer, .. }
            | Self::PeerFailed { peer, .. }
            | Self::PeerLeft { peer, .. }
            | Self::TagMismatch { peer, .. }
            | Self::WorldMismatch { peer, .. }
            | Self::VersionMismatch { peer, .. }
            | Self::GenerationMismatch { peer, .. } => Some(*peer as usize),
            Self::DescriptorLost { owner, .. } => Some(*owner as usize),
            _ => None,
        }
    }
}
