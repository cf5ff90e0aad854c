"""The exceptions of symmem."""


class Error(RuntimeError):
    """A failure, and a RuntimeError, which is what compiled code of PyTorch's raises instead. ``rank`` is the rank that reports
    it, ``peer`` the rank that it concerns; either may be None.
    """

    rank: int | None = None
    peer: int | None = None


class BackendError(Error):
    """A call to the driver, the runtime, NCCL, RCCL, cuBLASLt or hipBLASLt failed."""


class OutOfMemory(Error, MemoryError):
    """A device has too little memory left."""


class Mismatch(Error):
    """Ranks differ in a call, its arguments, the world or the version."""


class Timeout(Error, TimeoutError):
    """A wait passed its deadline."""


class PeerDied(Error):
    """A rank's process ended. ``Communicator.rebuild`` continues without it."""


class PeerFailed(Error):
    """A rank failed and reported it; its own error has the cause."""


class PeerLeft(Error):
    """A rank left in good order while others still called."""


class Aborted(Error):
    """This rank called ``Communicator.abort``."""


class Forked(Error):
    """This process is a fork of the one that joined, whose communicator it cannot use."""


class InvalidArgument(Error, ValueError):
    """An argument is invalid. The communicator can still be used."""


class Unsupported(Error):
    """The device, the backend or this version does not support the operation."""


class NotShareable(Error):
    """Peers cannot map the program's memory."""


class PeerUnreachable(Error):
    """Two devices cannot address each other's memory."""


class NoSuchDevice(Error):
    """There is no such device."""


class NoBackend(Error):
    """No backend can start."""


class BadEnvironment(Error):
    """An environment variable, the launcher's or symmem's, has an unusable value."""


class RendezvousError(Error):
    """The ranks cannot meet."""


class SystemFailure(Error):
    """The operating system refused a call."""
