"""What the plug-ins of vLLM and SGLang share: when ranks join, and which calls symmem takes."""

import functools
import logging
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import check, init
from .errors import Unsupported
from .torch import Group

logger = logging.getLogger(__name__)

# Sums in these types are what models exchange; whole numbers, truth values and fp8 stay with the engine.
_SUMMED = frozenset({torch.float16, torch.bfloat16, torch.float32})
_GATHERED = _SUMMED | {torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}
# Most bytes of an all-reduce's input, of an all-gather's result and of a reduce-scatter's input, by the number of ranks. They
# follow libsymmem_nccl's limits, beyond which NCCL is faster or nothing was measured (nccl-abi/src/choice.rs).
_MOST_BYTES = ((2, 32 << 20), (4, 8 << 20), (8, 2 << 20))
_MOST_BYTES_BEYOND = 1 << 20


def most_bytes(world_size: int) -> int:
    """Return the most bytes of a call that symmem takes from the engine."""
    return next((most for ranks, most in _MOST_BYTES if world_size <= ranks), _MOST_BYTES_BEYOND)


class Member:
    """This rank's membership in a group of the engine, on a communicator of the group's own.

    Whether a call is taken depends only on shape, strides, type and device, which all ranks of a tensor-parallel group share.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        self.group = group
        self.device = device
        self.most_bytes = most_bytes(group.world)

    def _takes(self, tensor: Tensor, dtypes: frozenset[torch.dtype], copies: int = 1) -> bool:
        return (
            tensor.device == self.device
            and tensor.dtype in dtypes
            and tensor.dim() > 0
            and tensor.is_contiguous()
            and 0 < tensor.numel() * tensor.element_size() * copies <= self.most_bytes
        )

    def takes_sum(self, tensor: Tensor) -> bool:
        """Return whether symmem all-reduces the tensor."""
        return self._takes(tensor, _SUMMED)

    def takes_gather(self, tensor: Tensor) -> bool:
        """Return whether symmem gathers the tensors of all ranks."""
        return self._takes(tensor, _GATHERED, self.group.world)

    def takes_scatter(self, tensor: Tensor, dim: int = 0) -> bool:
        """Return whether symmem reduces the tensors of all ranks, and scatters the result along a dimension."""
        return self._takes(tensor, _SUMMED) and tensor.shape[dim] % self.group.world == 0

    def all_gather(self, tensor: Tensor, dim: int) -> Tensor:
        """Return the tensors of all ranks, in rank order along a dimension."""
        rows = self.group.all_gather(tensor)
        if dim % tensor.dim() == 0:
            return rows
        return torch.cat(rows.chunk(self.group.world), dim)

    def reduce_scatter(self, tensor: Tensor, dim: int) -> Tensor:
        """Return this rank's part, along a dimension, of the sum of all ranks' tensors."""
        rows = self.group.reduce_scatter(tensor.movedim(dim, 0).contiguous())
        return rows.movedim(0, dim).contiguous()

    def leave(self) -> None:
        """Leave the communicator. The other ranks need not come."""
        self.group.communicator.leave()


def _machine() -> tuple[str, int]:
    """Return what two processes have in common if they can meet: the running kernel, and the network namespace."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.stat("/proc/self/ns/net").st_ino


def join(name: str, cpu_group: Any, device: torch.device) -> Member | None:
    """Join the ranks of a process group, or return None on all ranks if symmem cannot serve them.

    Collective: all ranks of ``cpu_group``, a group for tensors of the host, call it at the same place. Blocks until they have
    joined; raises :class:`symmem.Error` if they cannot, and what ``torch.distributed`` raises if a rank does not come.
    ``name`` is the group's name, for messages. ``device`` is this rank's GPU; with ``SYMMEM_BACKEND=host`` it is the host.
    """
    world_size = dist.get_world_size(cpu_group)
    on_host = os.environ.get("SYMMEM_BACKEND") == "host"
    if world_size == 1 or device.type != ("cpu" if on_host else "cuda"):
        return None
    known: list[Any] = [None] * world_size
    dist.all_gather_object(known, (_machine(), secrets.token_hex(16)), group=cpu_group)
    if any(machine != known[0][0] for machine, _ in known):
        logger.warning("symmem leaves group %s to the engine: its ranks are not on one machine", name)
        return None
    if not on_host and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    communicator = init(
        rank=dist.get_rank(cpu_group),
        world_size=world_size,
        job=known[0][1],
        backend="host" if on_host else None,
        device=None if on_host else device.index,
    )
    logger.info("symmem serves group %s: rank %d of %d, %s", name, communicator.rank, world_size, device)
    return Member(Group(communicator), device)


def require(owner: Any, names: Iterable[str], package: str) -> None:
    """Raise :class:`symmem.Unsupported` if a class of the engine lacks a method that a plug-in replaces."""
    missing = [name for name in names if not callable(getattr(owner, name, None))]
    if missing:
        raise Unsupported(
            f"{package}: {owner.__name__} has no {', '.join(missing)}, so this symmem does not fit it; "
            "use the versions that symmem's documentation names, or do not select the plug-in"
        )


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a method by ``around``, which gets the method before its arguments. The second time does nothing."""
    original = getattr(owner, name)
    if hasattr(original, "_symmem"):
        return

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    replacement._symmem = True  # type: ignore[attr-defined]
    setattr(owner, name, replacement)


def checked(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a method, then raise the error that ended a communicator of this process, if one has."""
    result = original(*args, **kwargs)
    check()
    return result
