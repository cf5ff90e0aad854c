//! Kinds of failures.

/// What kind of failure an [`crate::Error`] is: as much as a program needs to decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A call to the driver, the runtime or a vendor's library failed.
    Backend,
    /// A device has too little memory left. Free buffers or ask for less.
    OutOfMemory,
    /// Ranks disagree: about a call, its arguments, the world, the version.
    Mismatch,
    /// A wait passed its deadline.
    Timeout,
    /// A rank's process ended. [`crate::Communicator::rebuild`] goes on without it.
    PeerDied,
    /// A rank failed and said so; its own error has the cause.
    PeerFailed,
    /// A rank left in good order while others still called.
    PeerLeft,
    /// This rank called [`crate::Communicator::abort`].
    Aborted,
    /// An argument that no call accepts.
    InvalidArgument,
    /// The device, the backend or this version cannot do it.
    Unsupported,
    /// Memory of the caller's that peers cannot map.
    NotShareable,
    /// Two devices that cannot address each other's memory.
    PeerUnreachable,
    /// There is no such device.
    NoSuchDevice,
    /// No backend can start.
    NoBackend,
    /// What the launcher or the environment variables say cannot be meant.
    Environment,
    /// Ranks cannot meet for another reason.
    Bootstrap,
    /// The operating system refused a call.
    System,
}
