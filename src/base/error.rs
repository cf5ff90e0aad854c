//! The library's error type.

use crate::backend::abi::Status;
use crate::backend::{Failure, LoadError};
use crate::base::bootstrap_error::BootstrapError;
use crate::base::env::BadVariable;
use crate::base::error_kind::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// The result of an operation of symmem.
pub type Result<T> = std::result::Result<T, Error>;

/// An error: the rank that noticed it and, where they apply, the peer, the bytes, the failed call and the remedy.
/// `Error` is `Clone`, since every later call of a poisoned communicator returns the error that poisoned it.
///
/// [`Error::kind`], [`Error::rank`] and [`Error::peer`] apply to every error; match on a variant for the rest.
/// `{}` prints a sentence; `{:?}` adds its causes, so `fn main() -> symmem::Result<()>` ends with a readable
/// message; `{:#?}` prints the variant and its fields, on one line.
///
/// ```
/// # use symmem::{Error, ErrorKind};
/// fn can_rebuild(error: &Error) -> bool {
///     matches!(
///         error.kind(),
///         ErrorKind::PeerDied | ErrorKind::PeerFailed | ErrorKind::Timeout
///     )
/// }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the backend failed.
    #[error("{operation} ({}): {failure}", concerned(*rank, *peer, *bytes))]
    Backend {
        /// The rank that called.
        rank: usize,
        /// The peer concerned.
        peer: Option<usize>,
        /// The bytes concerned.
        bytes: Option<u64>,
        /// symmem's operation.
        operation: &'static str,
        /// The backend's report: call, error number, advice.
        #[source]
        failure: Box<Failure>,
    },
    /// A device has too little memory left.
    #[error(
        "{operation} (rank {rank}): no memory for {bytes} bytes: {failure}; free buffers or allocate less"
    )]
    OutOfMemory {
        /// The rank whose device is full.
        rank: usize,
        /// The bytes requested.
        bytes: u64,
        /// The operation that requested them.
        operation: &'static str,
        /// The backend's report.
        #[source]
        failure: Box<Failure>,
    },
    /// Ranks called the same collective operation with different arguments.
    #[error(
        "{operation} (rank {rank}, peer {peer}): mismatch of {what}: {mine} here, {theirs} at rank {peer}; all ranks \
         must agree"
    )]
    Mismatch {
        /// The rank that noticed.
        rank: usize,
        /// The first rank that differs.
        peer: usize,
        /// The collective operation.
        operation: &'static str,
        /// The argument.
        what: &'static str,
        /// Its value here.
        mine: String,
        /// Its value there.
        theirs: String,
    },
    /// A wait passed its deadline.
    #[error(
        "{operation} (rank {rank}, peer {peer}): timed out {}: channel {channel}, expected epoch {expected}, saw \
         {seen}; check that rank {peer} makes the same calls, or raise the deadline",
        after(*waited)
    )]
    Timeout {
        /// The rank that waited.
        rank: usize,
        /// The peer awaited.
        peer: usize,
        /// The operation.
        operation: &'static str,
        /// The channel.
        channel: u32,
        /// The epoch waited for.
        expected: u32,
        /// The epoch seen.
        seen: u32,
        /// Time waited, from the start of the kernel or of the wait; `None` if it was not measured.
        waited: Option<Duration>,
    },
    /// A wait for words of symmetric memory passed its deadline. The rank that was to write is unknown.
    #[error(
        "wait for words (rank {rank}): timed out after {waited:?}: word {index} is {seen}, and its comparison with \
         {expected} does not hold; check the rank that writes it, or raise the deadline"
    )]
    WordTimeout {
        /// The rank that waited.
        rank: usize,
        /// Index of the word, counted from the first of the wait; 0 if the wait was for any of several words.
        index: usize,
        /// The value it was compared with; of a 64-bit word the lower half.
        expected: u32,
        /// The value it had; of a 64-bit word the lower half.
        seen: u32,
        /// Time waited, from the start of the wait.
        waited: Duration,
    },
    /// A wait of the host for this rank's device passed its deadline.
    #[error(
        "{operation} (rank {rank}): timed out after {waited:?}; check the device and the other ranks, or raise the \
         deadline"
    )]
    HostTimeout {
        /// The rank that waited.
        rank: usize,
        /// The operation.
        operation: &'static str,
        /// Time waited.
        waited: Duration,
    },
    /// The runtime could not yet share this rank's memory with its peers, until shortly before the setup deadline.
    #[error(
        "{operation} (rank {rank}): {bytes} bytes were not ready to be shared within {waited:?}: {failure}; raise the \
         setup deadline, or share memory another way (SYMMEM_SHARE)"
    )]
    ShareTimeout {
        /// The rank whose memory it is.
        rank: usize,
        /// The operation.
        operation: &'static str,
        /// The bytes to share.
        bytes: u64,
        /// Time waited, in which the call was repeated.
        waited: Duration,
        /// The backend's report of the last call.
        #[source]
        failure: Box<Failure>,
    },
    /// A peer's process ended.
    #[error(
        "rank {rank}: rank {peer} died; data that it was to write is undefined; rebuild the communicator or end the \
         job"
    )]
    PeerDied {
        /// The rank that noticed.
        rank: usize,
        /// The rank that died.
        peer: usize,
    },
    /// A peer is alive but failed.
    #[error("rank {rank}: rank {peer} failed: {reason}; see the error on rank {peer}")]
    PeerFailed {
        /// The rank that received the report.
        rank: usize,
        /// The rank that failed.
        peer: usize,
        /// Its own error message.
        reason: String,
    },
    /// [`crate::Communicator::abort`] was called here.
    #[error("rank {rank}: this rank aborted the communicator; rebuild it or end the job")]
    Aborted {
        /// This rank.
        rank: usize,
    },
    /// This process is a fork of the one that built the communicator.
    #[error(
        "rank {rank}: process {} is a fork of process {owner}, and only process {owner} can use its communicator; fork \
         before you build the communicator, or start a program in the fork",
        std::process::id()
    )]
    Forked {
        /// The rank of the process that built the communicator.
        rank: usize,
        /// The number of that process.
        owner: u32,
    },
    /// A range outside of its buffer.
    #[error(
        "rank {rank}: elements {offset}..{} are out of range for a buffer of {length} elements",
        offset.saturating_add(*count)
    )]
    OutOfRange {
        /// This rank.
        rank: usize,
        /// The first element of the range.
        offset: usize,
        /// The elements of the range.
        count: usize,
        /// The elements of the buffer.
        length: usize,
    },
    /// An invalid argument.
    #[error("{operation} (rank {rank}): {message}")]
    InvalidArgument {
        /// This rank.
        rank: usize,
        /// The operation.
        operation: &'static str,
        /// The fault, and what to do.
        message: String,
    },
    /// The backend or device does not support the operation.
    #[error("{operation} (rank {rank}): not supported: {message}")]
    Unsupported {
        /// This rank.
        rank: usize,
        /// The operation.
        operation: &'static str,
        /// The reason, and what is supported.
        message: String,
    },
    /// Peers cannot map memory of the caller's kind.
    #[error("rank {rank}: the {bytes} bytes at {address:#x} cannot be shared with peers: {reason}")]
    NotShareable {
        /// This rank.
        rank: usize,
        /// The memory's address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The reason, and what to do.
        reason: String,
    },
    /// A module's code expects another [`crate::Handle`] than this version of symmem makes.
    #[error(
        "kernel {kernel} (rank {rank}): its code {}, and this version of symmem makes handles of version {expected}; \
         compile it with this version's headers, or use `plain_function` for a kernel that takes no handle",
        compiled(*found)
    )]
    HandleVersion {
        /// This rank.
        rank: usize,
        /// The kernel requested.
        kernel: String,
        /// The version of the headers that the code was compiled with; `None` if it does not include
        /// `symmem/handle.h`, or one that is older than handles' versions.
        found: Option<u32>,
        /// The version of the handles that this library makes.
        expected: u32,
    },
    /// A launch's arguments are not as large as the kernel's parameters.
    #[error(
        "launch (rank {rank}): {given} bytes of arguments for kernel {kernel}, whose parameters have {expected}; pass a \
         `repr(C)` struct with the types and the order of the parameters, and without padding at its end: make it \
         `repr(C, packed)`, or have the kernel take the struct as its one parameter"
    )]
    ArgumentSize {
        /// This rank.
        rank: usize,
        /// The kernel.
        kernel: String,
        /// Bytes of the arguments, with their padding.
        given: usize,
        /// Bytes of the kernel's parameters, to the end of the last one.
        expected: u64,
    },
    /// No strategy of sharing memory works between these two devices.
    #[error("rank {rank}: cannot access the memory of rank {peer}: {reason}")]
    PeerUnreachable {
        /// The rank that tried.
        rank: usize,
        /// The rank it cannot reach.
        peer: usize,
        /// The strategies tried, and why each failed.
        reason: String,
    },
    /// An operation to a rank of another node failed, or got no answer.
    #[error(
        "{operation} ({}, node {node}): {failure}; check rank {peer} and the network between the nodes",
        concerned(*rank, Some(*peer), *bytes)
    )]
    Network {
        /// The rank that noticed.
        rank: usize,
        /// The rank of another node.
        peer: usize,
        /// That node.
        node: usize,
        /// The bytes concerned.
        bytes: Option<u64>,
        /// symmem's operation.
        operation: &'static str,
        /// UCX's report (call, status, text), or [`NoAnswer`].
        #[source]
        failure: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// There is no such device.
    #[error("rank {rank}: {message}")]
    NoSuchDevice {
        /// This rank.
        rank: usize,
        /// The device requested, and the devices that exist.
        message: String,
    },
    /// No backend could start. The text lists every backend that was probed and the reason why it failed.
    #[error("{0}")]
    NoBackend(String),
    /// Text that selects no backend; see [`crate::backends::Selection`].
    #[error("`{0}` is not a backend; use auto, host, cuda, hip, a plugin's name or path:FILE")]
    BadSelection(String),
    /// An environment variable has a value that cannot be used.
    #[error(transparent)]
    BadVariable(Box<BadVariable>),
    /// A plugin file is not a backend.
    #[error(transparent)]
    Plugin(Arc<LoadError>),
    /// Finding, reaching or agreeing with the other ranks failed.
    #[error(transparent)]
    Bootstrap(Arc<BootstrapError>),
    /// A system call failed.
    #[error("rank {rank}: {call} failed: {reason}")]
    System {
        /// This rank.
        rank: usize,
        /// The system call.
        call: &'static str,
        /// Its error.
        reason: String,
    },
}

/// A rank of another node has not answered: the `failure` of [`Error::Network`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no answer within {waited:?}")]
pub struct NoAnswer {
    /// Time waited.
    pub waited: Duration,
}

fn after(waited: Option<Duration>) -> String {
    waited.map_or("at its deadline".into(), |waited| {
        format!("after {waited:?}")
    })
}

fn compiled(found: Option<u32>) -> String {
    match found {
        Some(version) => format!("takes handles of version {version}"),
        None => "was compiled without symmem/handle.h, or with one that had no version".into(),
    }
}

fn concerned(rank: usize, peer: Option<usize>, bytes: Option<u64>) -> String {
    match (peer, bytes) {
        (Some(peer), Some(bytes)) => format!("rank {rank}, peer {peer}, {bytes} bytes"),
        (Some(peer), None) => format!("rank {rank}, peer {peer}"),
        (None, Some(bytes)) => format!("rank {rank}, {bytes} bytes"),
        (None, None) => format!("rank {rank}"),
    }
}

impl Error {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Backend { .. } => ErrorKind::Backend,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::Mismatch { .. } => ErrorKind::Mismatch,
            Self::Timeout { .. }
            | Self::WordTimeout { .. }
            | Self::HostTimeout { .. }
            | Self::ShareTimeout { .. } => ErrorKind::Timeout,
            Self::PeerDied { .. } => ErrorKind::PeerDied,
            Self::PeerFailed { .. } => ErrorKind::PeerFailed,
            Self::Aborted { .. } => ErrorKind::Aborted,
            Self::Forked { .. } => ErrorKind::Forked,
            Self::OutOfRange { .. }
            | Self::InvalidArgument { .. }
            | Self::ArgumentSize { .. }
            | Self::BadSelection(_) => ErrorKind::InvalidArgument,
            Self::Unsupported { .. } | Self::HandleVersion { .. } => ErrorKind::Unsupported,
            Self::NotShareable { .. } => ErrorKind::NotShareable,
            Self::Network { failure, .. } if failure.is::<NoAnswer>() => ErrorKind::Timeout,
            Self::PeerUnreachable { .. } | Self::Network { .. } => ErrorKind::PeerUnreachable,
            Self::NoSuchDevice { .. } => ErrorKind::NoSuchDevice,
            Self::NoBackend(_) | Self::Plugin(_) => ErrorKind::NoBackend,
            Self::BadVariable(_) => ErrorKind::Environment,
            Self::Bootstrap(error) => error.kind(),
            Self::System { .. } => ErrorKind::System,
        }
    }

    /// Returns the rank that failed or noticed; `None` before ranks have numbers.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Backend { rank, .. }
            | Self::OutOfMemory { rank, .. }
            | Self::Mismatch { rank, .. }
            | Self::Timeout { rank, .. }
            | Self::WordTimeout { rank, .. }
            | Self::HostTimeout { rank, .. }
            | Self::ShareTimeout { rank, .. }
            | Self::PeerDied { rank, .. }
            | Self::PeerFailed { rank, .. }
            | Self::Aborted { rank }
            | Self::Forked { rank, .. }
            | Self::OutOfRange { rank, .. }
            | Self::InvalidArgument { rank, .. }
            | Self::Unsupported { rank, .. }
            | Self::HandleVersion { rank, .. }
            | Self::ArgumentSize { rank, .. }
            | Self::NotShareable { rank, .. }
            | Self::PeerUnreachable { rank, .. }
            | Self::Network { rank, .. }
            | Self::NoSuchDevice { rank, .. }
            | Self::System { rank, .. } => Some(*rank),
            Self::BadVariable(bad) => bad.rank,
            Self::Bootstrap(error) => error.rank(),
            Self::NoBackend(_) | Self::BadSelection(_) | Self::Plugin(_) => None,
        }
    }

    /// Returns the other rank concerned: the one that died, failed, differs, was awaited or could not be
    /// reached; the first of them if there are several.
    pub fn peer(&self) -> Option<usize> {
        match self {
            Self::Mismatch { peer, .. }
            | Self::Timeout { peer, .. }
            | Self::PeerDied { peer, .. }
            | Self::PeerFailed { peer, .. }
            | Self::PeerUnreachable { peer, .. }
            | Self::Network { peer, .. } => Some(*peer),
            Self::Backend { peer, .. } => *peer,
            Self::Bootstrap(error) => error.peer(),
            _ => None,
        }
    }

    /// Makes the error of a failed call to the backend.
    pub(crate) fn backend(rank: usize, operation: &'static str, failure: Failure) -> Self {
        match failure.status {
            Status::NO_DEVICE => Self::NoSuchDevice {
                rank,
                message: failure.to_string(),
            },
            Status::UNSUPPORTED => Self::Unsupported {
                rank,
                operation,
                message: failure.to_string(),
            },
            _ => Self::Backend {
                rank,
                peer: None,
                bytes: None,
                operation,
                failure: Box::new(failure),
            },
        }
    }

    /// Adds the peer and the bytes concerned to a failed call.
    pub(crate) fn about(self, about_peer: Option<usize>, about_bytes: u64) -> Self {
        match self {
            Self::Backend {
                rank,
                operation,
                failure,
                ..
            } if failure.status == Status::OUT_OF_MEMORY => Self::OutOfMemory {
                rank,
                bytes: about_bytes,
                operation,
                failure,
            },
            Self::Backend {
                rank,
                operation,
                failure,
                ..
            } => Self::Backend {
                rank,
                peer: about_peer,
                bytes: Some(about_bytes),
                operation,
                failure,
            },
            other => other,
        }
    }
}

impl From<BootstrapError> for Error {
    /// A bad variable or a fork is the same variant, whichever code notices it.
    fn from(error: BootstrapError) -> Self {
        match error {
            BootstrapError::BadVariable {
                name,
                value,
                expected,
            } => BadVariable::new(name, value, expected).into(),
            BootstrapError::Forked { rank, owner } => Self::Forked {
                rank: rank as usize,
                owner,
            },
            error => Self::Bootstrap(Arc::new(error)),
        }
    }
}

impl From<BadVariable> for Error {
    fn from(bad: BadVariable) -> Self {
        Self::BadVariable(Box::new(bad))
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Plugin(Arc::new(error))
    }
}

/// Returns a failure of the control plane as `rank` reports it: the failure of a peer if it is one.
pub(crate) fn translate(rank: usize, error: BootstrapError) -> Error {
    match error {
        BootstrapError::PeerDied { peer, .. } => Error::PeerDied {
            rank,
            peer: peer as usize,
        },
        BootstrapError::PeerFailed { peer, reason } => Error::PeerFailed {
            rank,
            peer: peer as usize,
            reason,
        },
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend() -> Error {
        let failure = Failure::of_call(Status::CALL_FAILED, "cuMemMap", 719, "reset the device");
        Error::backend(1, "put", failure).about(Some(3), 64)
    }

    #[test]
    fn every_error_tells_its_kind_its_rank_and_its_peer() {
        let late = BootstrapError::Timeout {
            rank: 2,
            awaited: "the rendezvous".into(),
            missing: vec![5, 6],
            elapsed: Duration::from_secs(1),
            source: None,
        };
        let of = |error: &Error| (error.kind(), error.rank(), error.peer());
        assert_eq!(of(&backend()), (ErrorKind::Backend, Some(1), Some(3)));
        assert_eq!(
            of(&late.into()),
            (ErrorKind::Timeout, Some(2), Some(5)),
            "as a wait on a device"
        );
        let full = Failure::new(Status::OUT_OF_MEMORY, "cuMemCreate", "free memory");
        let full = Error::backend(0, "allocate", full).about(None, 1 << 30);
        assert_eq!(of(&full), (ErrorKind::OutOfMemory, Some(0), None));
        let none = Error::NoBackend(String::new());
        assert_eq!(of(&none), (ErrorKind::NoBackend, None, None));
    }

    #[test]
    fn a_variable_that_the_bootstrap_refuses_is_a_wrong_variable_like_any_other() {
        let error = Error::from(BootstrapError::BadVariable {
            name: "SYMMEM_RANK",
            value: "two".into(),
            expected: "a whole number from 0 up",
        });
        let Error::BadVariable(bad) = &error else {
            panic!("{error:#?}");
        };
        assert_eq!((bad.name, bad.value.as_str()), ("SYMMEM_RANK", "two"));
        assert_eq!(error.kind(), ErrorKind::Environment);
    }

    #[test]
    fn an_error_is_at_most_this_large() {
        // A result is moved on every call.
        assert!(size_of::<Error>() <= 96, "{}", size_of::<Error>());
    }
}
