"""symmem's collectives as operators of PyTorch.

>>> import torch, symmem, symmem.torch
>>> communicator = symmem.init()
>>> group = symmem.torch.Group(communicator)
>>> y = group.all_reduce(torch.ones(1024, dtype=torch.bfloat16, device="cuda"))

They take any contiguous tensor and run on the current stream, also inside ``torch.compile`` and CUDA graphs. They have no
gradient: a result that needs one warns in the backward pass, and gives none. The operators are ``torch.ops.symmem.*``; a call goes from PyTorch's dispatcher to the library without Python.
"""

import os
from typing import NoReturn

import torch
from torch import Tensor

from . import _symmem
from ._symmem import (
    Communicator,
    Products,
    reductions,
    register_operators,
    take_exception,
)
from .errors import InvalidArgument

__all__ = ["Group", "allocation_failure", "allocator"]


def _file(name: str) -> str | None:
    path = os.path.join(os.path.dirname(torch.__file__), "lib", name)
    return path if os.path.exists(path) else None


register_operators(
    _file("libtorch_cpu.so") or "libtorch_cpu.so",
    _file("libtorch_hip.so" if torch.version.hip else "libtorch_cuda.so"),
)

_NUMBERS = dict(reductions)


# What the compiler needs to know: the shapes of results. It sees symbolic sizes, so nothing is checked here.


@torch.library.register_fake("symmem::all_reduce")
def _(input: Tensor, op: int, communicator: int) -> Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


@torch.library.register_fake("symmem::all_gather")
def _(input: Tensor, world: int, communicator: int) -> Tensor:
    if input.dim() == 0:
        return input.new_empty((world,))
    return input.new_empty((input.shape[0] * world, *input.shape[1:]))


@torch.library.register_fake("symmem::reduce_scatter")
def _(input: Tensor, op: int, world: int, communicator: int) -> Tensor:
    return input.new_empty((input.shape[0] // world, *input.shape[1:]))


@torch.library.register_fake("symmem::all_to_all_single")
def _(input: Tensor, world: int, communicator: int) -> Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


@torch.library.register_fake("symmem::all_gather_matmul")
def _(a: Tensor, b: Tensor, world: int, communicator: int) -> Tensor:
    return a.new_empty((a.shape[0] * world, b.shape[1]))


@torch.library.register_fake("symmem::matmul_reduce_scatter")
def _(a: Tensor, b: Tensor, world: int, communicator: int) -> Tensor:
    return a.new_empty((a.shape[0] // world, b.shape[1]))


@torch.library.register_fake("symmem::matmul_all_reduce")
def _(a: Tensor, b: Tensor, communicator: int) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[1]))


@torch.library.register_fake("symmem::all_reduce_rms_norm")
def _(
    input: Tensor, residual: Tensor, weight: Tensor, epsilon: float, weight_offset: float, communicator: int
) -> tuple[Tensor, Tensor]:
    contiguous = torch.contiguous_format
    return torch.empty_like(input, memory_format=contiguous), torch.empty_like(residual, memory_format=contiguous)


def _nothing(*_: object) -> None:
    return None


for _name in (
    "all_reduce_",
    "all_reduce_rms_norm_",
    "all_reduce_rms_norm_f8_",
    "all_gather_out",
    "reduce_scatter_out",
    "all_to_all_single_out",
):
    torch.library.register_fake(f"symmem::{_name}")(_nothing)

# One overload each: that saves the search for it in every call.
_all_reduce = torch.ops.symmem.all_reduce.default
_all_reduce_ = torch.ops.symmem.all_reduce_.default
_all_gather = torch.ops.symmem.all_gather.default
_reduce_scatter = torch.ops.symmem.reduce_scatter.default
_all_to_all_single = torch.ops.symmem.all_to_all_single.default
_all_gather_matmul = torch.ops.symmem.all_gather_matmul.default
_matmul_reduce_scatter = torch.ops.symmem.matmul_reduce_scatter.default
_matmul_all_reduce = torch.ops.symmem.matmul_all_reduce.default
_all_reduce_rms_norm = torch.ops.symmem.all_reduce_rms_norm.default
_all_reduce_rms_norm_ = torch.ops.symmem.all_reduce_rms_norm_.default
_all_reduce_rms_norm_f8_ = torch.ops.symmem.all_reduce_rms_norm_f8_.default
_all_gather_out = torch.ops.symmem.all_gather_out.default
_reduce_scatter_out = torch.ops.symmem.reduce_scatter_out.default
_all_to_all_single_out = torch.ops.symmem.all_to_all_single_out.default


def _number(op: str) -> int:
    number = _NUMBERS.get(op)
    if number is None:
        # Not an operator's number, which it refuses with the names that there are.
        raise InvalidArgument(f"there is no reduction {op!r}; use one of {', '.join(_NUMBERS)}")
    return number


def _changed(tensor: Tensor) -> None:
    """Tell autograd that a tensor has other elements than those that it may have saved."""
    if torch.is_grad_enabled():
        torch.autograd.graph.increment_version(tensor)


def _raise(error: RuntimeError) -> NoReturn:
    """Raise symmem's exception for what an operator raised on this thread, if it has one."""
    exception = take_exception()
    # One of a compiled call may still be there.
    if exception is None or str(exception) not in str(error):
        raise error
    raise exception from None


class Group:
    """The operators on a communicator.

    ``world`` is the number of ranks. All ranks make the same calls in the same order. Outside of ``torch.compile`` failures are
    the exceptions of :mod:`symmem.errors`; compiled code raises RuntimeError with the same message.
    """

    def __init__(self, communicator: Communicator) -> None:
        # The compiler takes numbers for constants, and knows nothing of a communicator.
        self.communicator = communicator
        self.number = communicator.number
        self.rank = communicator.rank
        self.world = communicator.world_size
        self._products = Products(self.number)

    def all_reduce(self, input: Tensor, op: str = "sum") -> Tensor:
        """Return the reduction of the inputs of all ranks: sum, average, minimum, maximum or product."""
        try:
            return _all_reduce(input, _number(op), self.number)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _raise(error)

    def all_reduce_(self, tensor: Tensor, op: str = "sum") -> Tensor:
        """Reduce the tensors of all ranks in place, and return the tensor."""
        try:
            _all_reduce_(tensor, _number(op), self.number)
        except RuntimeError as error:
            _raise(error)
        _changed(tensor)
        return tensor

    def all_gather(self, input: Tensor) -> Tensor:
        """Return the inputs of all ranks, in rank order along the first dimension."""
        try:
            return _all_gather(input, self.world, self.number)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _raise(error)

    def reduce_scatter(self, input: Tensor, op: str = "sum") -> Tensor:
        """Return this rank's part of the reduction of the inputs of all ranks, along the first dimension."""
        try:
            return _reduce_scatter(input, _number(op), self.world, self.number)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _raise(error)

    def all_to_all(self, input: Tensor) -> Tensor:
        """Return part r of the inputs of all ranks, in rank order along the first dimension; r is this rank."""
        try:
            return _all_to_all_single(input, self.world, self.number)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _raise(error)

    def all_gather_matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the product of the rows ``a`` of all ranks, in rank order, with this rank's ``b``: float16 or bfloat16.

        ``b`` is contiguous, or the transpose of a contiguous tensor. The first call of a shape is collective and blocks, so it
        comes before any capture. ``a`` is copied; ``Communicator.all_gather_gemm`` saves that.
        """
        try:
            return _all_gather_matmul(a, b, self.world, self.number)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _raise(error)

    def matmul_reduce_scatter(self, a: Tensor, b: Tensor) -> Tensor:
        """Return this rank's rows of the sum of all ranks' products ``a @ b``: float16 or bfloat16.

        ``a`` is contiguous, with as many rows on all ranks, a multiple of their number; ``b`` is contiguous, or the transpose of a
        contiguous tensor. The first call of a shape is collective and blocks, so it comes before any capture.
        """
        try:
            return _matmul_reduce_scatter(a, b, self.world, self.number)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _raise(error)

    def matmul_all_reduce(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the sum of all ranks' products ``a @ b``, with the same bits on all: :meth:`matmul_reduce_scatter` for any rows."""
        try:
            return _matmul_all_reduce(a, b, self.number)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _raise(error)

    def all_reduce_rms_norm(
        self, input: Tensor, residual: Tensor, weight: Tensor, epsilon: float = 1e-5, *, weight_offset: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Return the RMSNorm of ``y`` over the last dimension, and ``y``: the sum of all ranks' inputs plus the residual.

        The norm is ``y * (weight + weight_offset) / sqrt(mean(y * y) + epsilon)``. Types are bfloat16, float16 and float32. The
        residual is the same on all ranks. Sums are in float32, ``y`` is rounded once, and so is the norm.
        """
        try:
            return _all_reduce_rms_norm(  # type: ignore[no-any-return]
                input, residual, weight, epsilon, weight_offset, self.number
            )
        except RuntimeError as error:
            _raise(error)

    def all_reduce_rms_norm_(
        self, input: Tensor, residual: Tensor, weight: Tensor, epsilon: float = 1e-5, *, weight_offset: float = 0.0
    ) -> Tensor:
        """:meth:`all_reduce_rms_norm` in place: ``input`` becomes the norm, and is returned; ``residual`` becomes the sum."""
        try:
            _all_reduce_rms_norm_(input, residual, weight, epsilon, weight_offset, self.number)
        except RuntimeError as error:
            _raise(error)
        _changed(input)
        _changed(residual)
        return input

    def all_reduce_rms_norm_f8(
        self,
        input: Tensor,
        residual: Tensor,
        weight: Tensor,
        scale: Tensor | None = None,
        epsilon: float = 1e-5,
        *,
        groups: bool = False,
        weight_offset: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of :meth:`all_reduce_rms_norm` as float8_e4m3fn, and its scales; ``residual`` becomes the sum.

        A number is the norm divided by its scale. ``scale``, of one float32, is that of all numbers; without it, each row has a
        scale, or with ``groups`` each 128 elements of a row: the largest magnitude there, at least 1e-10, divided by 448.
        """
        rows = tuple(input.shape[:-1])
        if scale is not None:
            kind, scales = 0, scale
        elif groups:
            kind, scales = 2, input.new_empty((*rows, input.shape[-1] // 128), dtype=torch.float32)
        else:
            kind, scales = 1, input.new_empty((*rows, 1), dtype=torch.float32)
        output = torch.empty_like(input, dtype=torch.float8_e4m3fn, memory_format=torch.contiguous_format)
        try:
            _all_reduce_rms_norm_f8_(
                input, residual, weight, output, scales, kind, epsilon, weight_offset, self.number
            )
        except RuntimeError as error:
            _raise(error)
        _changed(residual)
        return output, scales

    def all_gather_into(self, output: Tensor, input: Tensor) -> Tensor:
        """:meth:`all_gather` into a tensor, which is returned."""
        try:
            _all_gather_out(input, output, self.number)
        except RuntimeError as error:
            _raise(error)
        _changed(output)
        return output

    def reduce_scatter_into(self, output: Tensor, input: Tensor, op: str = "sum") -> Tensor:
        """:meth:`reduce_scatter` into a tensor, which is returned."""
        try:
            _reduce_scatter_out(input, output, _number(op), self.number)
        except RuntimeError as error:
            _raise(error)
        _changed(output)
        return output

    def all_to_all_into(self, output: Tensor, input: Tensor) -> Tensor:
        """:meth:`all_to_all` into a tensor, which is returned."""
        try:
            _all_to_all_single_out(input, output, self.number)
        except RuntimeError as error:
            _raise(error)
        _changed(output)
        return output


def allocator() -> "torch.cuda.memory.CUDAPluggableAllocator":
    """Return an allocator for ``torch.cuda.MemPool``, whose tensors can be made symmetric later by ``Communicator.register``.

    >>> pool = torch.cuda.MemPool(symmem.torch.allocator().allocator())
    >>> with torch.cuda.use_mem_pool(pool):
    ...     tensor = torch.empty(1024, device="cuda")  # this rank alone
    >>> buffer = communicator.register(tensor)  # all ranks, each with a tensor at any place of its pool

    The process has a communicator on the device first, and the pool ends before the communicator does.
    """
    return torch.cuda.memory.CUDAPluggableAllocator(_symmem.__file__, "symmem_alloc", "symmem_free")


def allocation_failure() -> str | None:
    """Return why this thread's last allocation by :func:`allocator` failed, once."""
    return _symmem.take_allocation_failure()
