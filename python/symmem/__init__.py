"""Symmetric memory across the GPUs of one machine, and on the host.

>>> import numpy, symmem
>>> communicator = symmem.init()  # rank and world size of the launcher: symmem run, torchrun, mpirun
>>> x = numpy.ones(4, dtype="float32")  # or a tensor of PyTorch, CuPy or JAX on a GPU
>>> communicator.all_reduce(x)
>>> communicator.finalize()
"""

import atexit
import contextlib
import time
import weakref
from collections.abc import Iterator
from typing import Any

from ._symmem import (
    AllGatherGemm,
    At,
    Buffer,
    Communicator,
    GemmReduce,
    PeerBuffer,
    Stream,
    __version__,
    join,
)
from .errors import (
    Aborted,
    BackendError,
    BadEnvironment,
    Error,
    Forked,
    InvalidArgument,
    Mismatch,
    NoBackend,
    NoSuchDevice,
    NotShareable,
    OutOfMemory,
    PeerDied,
    PeerFailed,
    PeerLeft,
    PeerUnreachable,
    RendezvousError,
    SystemFailure,
    Timeout,
    Unsupported,
)

__all__ = [
    "Aborted",
    "AllGatherGemm",
    "At",
    "BackendError",
    "BadEnvironment",
    "Buffer",
    "Communicator",
    "Error",
    "Forked",
    "GemmReduce",
    "InvalidArgument",
    "Mismatch",
    "NoBackend",
    "NoSuchDevice",
    "NotShareable",
    "OutOfMemory",
    "PeerBuffer",
    "PeerDied",
    "PeerFailed",
    "PeerLeft",
    "PeerUnreachable",
    "RendezvousError",
    "Stream",
    "SystemFailure",
    "Timeout",
    "Unsupported",
    "__version__",
    "check",
    "from_group",
    "guard",
    "init",
]

_live: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


def init(
    *,
    rank: int | None = None,
    world_size: int | None = None,
    job: str | None = None,
    backend: str | None = None,
    device: int | None = None,
    deadline: float | None = None,
    setup_deadline: float | None = None,
    check_calls: bool | None = None,
) -> Communicator:
    """Join a world of ranks, and return this rank's communicator. Blocks until all ranks have joined.

    Without arguments, the launcher says which: ``symmem run``, torchrun, Open MPI, MPICH or Slurm, by their environment
    variables; without a launcher, this process is a world of one rank.

    ``rank``, ``world_size``, ``job``: this rank, the number of ranks, and a name that the ranks share and no other job of the
    machine has, where there is no launcher.
    ``backend``: "cuda", "hip", "host", or "auto", the default: the first that has a device.
    ``device``: the GPU's number; by default the rank's number on this host.
    ``deadline``: seconds after which a wait for a peer is an error, 600 by default.
    ``setup_deadline``: the same for each step of joining and allocating, 60 by default.
    ``check_calls``: compare each collective call of all ranks before it is made (debug mode). Slow.
    """
    communicator = join(
        rank, world_size, job, backend, device, deadline, setup_deadline, check_calls
    )
    _live.add(communicator)
    return communicator


def from_group(group: Any = None, **options: Any) -> Communicator:
    """Join a world of the ranks of a process group of ``torch.distributed``, by default of all. See :func:`init`."""
    import secrets

    import torch.distributed as dist

    name = [secrets.token_hex(16)]
    first = dist.get_global_rank(group, 0) if group is not None else 0
    dist.broadcast_object_list(name, src=first, group=group)
    return init(
        rank=dist.get_rank(group), world_size=dist.get_world_size(group), job=name[0], **options
    )


def check() -> None:
    """Raise the error that ended a communicator of this process, if one has."""
    Communicator.check_all()


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Raise at the end of the block the error that ended a communicator, such as :class:`PeerDied`.

    Waits on the device end when a peer dies, so that ``torch.cuda.synchronize()`` returns; its results are undefined then. An
    exception of the block is chained to the error.
    """
    try:
        yield
    finally:
        check()


def _has_left(communicator: Communicator) -> bool:
    with contextlib.suppress(Error):
        communicator.leave()
    try:
        _ = communicator.rank
    except InvalidArgument:
        return True
    return False


@atexit.register
def _leave() -> None:
    # The interpreter may not drop what modules hold, and the other ranks must learn that this one is gone.
    busy = [communicator for communicator in _live if not _has_left(communicator)]
    # A thread in a call would return into an interpreter that has ended.
    for communicator in busy:
        communicator.abort()
    limit = time.monotonic() + 5
    while busy and time.monotonic() < limit:
        time.sleep(0.01)
        busy = [communicator for communicator in busy if not _has_left(communicator)]
