//! Kinds of failures.

/// The kind of an [`crate::Error`], as detailed as a program needs to decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A call to the driver, the runtime, NCCL, RCCL, cuBLASLt or hipBLASLt failed.
    Backend,
    /// A device has too little memory left. Free buffers or allocate less.
    OutOfMemory,
    /// Ranks differ in a call, its arguments, the world or the version.
    Mismatch,
    /// A wait passed its deadline.
    Timeout,
    /// A rank's process ended. [`crate::Communicator::rebuild`] continues without it.
    PeerDied,
    /// A rank failed and reported it; its own error has the cause.
    PeerFailed,
    /// A rank left in good order while others still called.
    PeerLeft,
    /// This rank called [`crate::Communicator::abort`].
    Aborted,
    /// This process is a fork of the one that built the communicator, which it cannot use.
    Forked,
    /// An invalid argument.
    InvalidArgument,
    /// The device, the backend or this version does not support the operation.
    Unsupported,
    /// Peers cannot map the caller's memory.
    NotShareable,
    /// Two devices cannot address each other's memory, or the network between two nodes failed.
    PeerUnreachable,
    /// There is no such device.
    NoSuchDevice,
    /// No backend can start.
    NoBackend,
    /// An environment variable, the launcher's or symmem's, has an unusable value.
    Environment,
    /// The ranks cannot meet, for another reason.
    Bootstrap,
    /// The operating system refused a call.
    System,
}
