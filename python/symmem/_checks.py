"""Checks of what ``torch.distributed`` passes to a collective, before anything is communicated.

A rank that raises in the middle of a call leaves its peers waiting. A rank that raises before it can repeat the call.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ._symmem import At
from .errors import InvalidArgument, Unsupported

_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "average",
    dist.ReduceOp.MIN: "minimum",
    dist.ReduceOp.MAX: "maximum",
    dist.ReduceOp.PRODUCT: "product",
}
# The communicator reduces booleans as bytes of 0 and 1: a sum is "any", a product "all".
_OF_BOOL = {"sum": "maximum", "maximum": "maximum", "product": "minimum", "minimum": "minimum"}


def _operator(op: Any) -> str:
    """Return an operator's name in ``torch.distributed``: objects of ``ReduceOp`` print as addresses."""
    members: dict[str, Any] = dist.ReduceOp.RedOpType.__members__
    return next((name for name, member in members.items() if op == member), str(op))


def _described(tensor: Tensor) -> str:
    return f"{tensor.numel()} elements of {tensor.dtype}"


class Call:
    """A call of a group by one rank, under the name that its errors have."""

    def __init__(self, name: str, rank: int, world_size: int) -> None:
        self._name = name
        self._rank = rank
        self._world_size = world_size

    def invalid(self, message: str) -> InvalidArgument:
        """Return the error for an invalid argument."""
        error = InvalidArgument(f"{self._name} (rank {self._rank}): {message}")
        error.rank = self._rank
        return error

    def unsupported(self, message: str) -> Unsupported:
        """Return the error for what symmem does not do."""
        error = Unsupported(f"{self._name} (rank {self._rank}): {message}")
        error.rank = self._rank
        return error

    def device(self, tensors: Sequence[Tensor]) -> str:
        """Return the type of the device that has all tensors, "cpu" if there are none."""
        devices = {tensor.device for tensor in tensors}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            raise self.invalid(f"tensors are on different devices: {names}; pass tensors of one device")
        return devices.pop().type if devices else "cpu"

    def contiguous(self, *tensors: Tensor) -> None:
        """Check that each tensor's elements are its memory, in order."""
        for tensor in tensors:
            if tensor.layout != torch.strided or not tensor.is_contiguous():
                raise self.invalid(
                    f"a tensor of shape {tuple(tensor.shape)} is not contiguous; pass `tensor.contiguous()`"
                )
            if tensor.is_conj() or tensor.is_neg():
                raise self.invalid(
                    "a tensor is a lazy conjugate or negation; pass `tensor.resolve_conj().resolve_neg()`"
                )

    def root(self, root: int) -> int:
        """Return the root, if the group has it."""
        if not 0 <= root < self._world_size:
            raise self.invalid(f"there is no root {root} in a group of {self._world_size}")
        return root

    def peer(self, peer: int) -> int:
        """Return the peer, if the group has it."""
        if not 0 <= peer < self._world_size:
            raise self.invalid(f"there is no rank {peer} in a group of {self._world_size}")
        return peer

    def one(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the only tensor of a list."""
        if len(tensors) != 1:
            raise self.invalid(f"there are {len(tensors)} tensors; pass one")
        return tensors[0]

    def equally_many(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Check that there are as many outputs as inputs."""
        if len(outputs) != len(inputs):
            raise self.invalid(f"there are {len(outputs)} outputs, but {len(inputs)} inputs; pass one output per input")

    def gathers(self, output: Tensor, input: Tensor) -> None:
        """Check that an output has room for the inputs of all ranks."""
        self._pair(output, input, self._world_size * input.numel(), "the inputs of all ranks are")

    def scatters(self, output: Tensor, input: Tensor) -> None:
        """Check that an input has an output for each rank."""
        self._pair(input, output, self._world_size * output.numel(), "the outputs of all ranks are")

    def exchanges(self, output: Tensor, input: Tensor) -> None:
        """Check that an output is as large as an input."""
        self._pair(output, input, input.numel(), "the input is")

    def _pair(self, whole: Tensor, other: Tensor, elements: int, needed: str) -> None:
        self.contiguous(whole, other)
        if whole.dtype != other.dtype or whole.numel() != elements:
            raise self.invalid(
                f"a tensor has {_described(whole)}, but {needed} {elements} elements of {other.dtype}"
            )

    def parts(self, parts: Sequence[Tensor], tensor: Tensor) -> None:
        """Check that a list has a tensor like ``tensor`` for each rank. They are copied, so they need not be contiguous."""
        self.contiguous(tensor)
        self._one_per_rank(parts)
        for peer, part in enumerate(parts):
            if part.dtype != tensor.dtype or part.numel() != tensor.numel():
                raise self.invalid(
                    f"the tensor for rank {peer} has {_described(part)}, this rank's {_described(tensor)}; "
                    "all ranks' tensors need equal sizes"
                )

    def _one_per_rank(self, parts: Sequence[Any]) -> None:
        if len(parts) != self._world_size:
            raise self.invalid(f"a list has {len(parts)} items for {self._world_size} ranks; pass one per rank")

    def exchange(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Check a tensor for, and one from, each rank. Only this rank's own two can be compared here."""
        self._one_per_rank(outputs)
        self._one_per_rank(inputs)
        self.contiguous(*outputs, *inputs)
        types = {tensor.dtype for tensor in (*outputs, *inputs)}
        if len(types) > 1:
            raise self.invalid(f"tensors have different types: {', '.join(sorted(map(str, types)))}")
        output, input = outputs[self._rank], inputs[self._rank]
        if output.numel() != input.numel():
            raise self.invalid(
                f"this rank sends itself {input.numel()} elements, but receives {output.numel()} from itself"
            )

    def splits(self, tensor: Tensor, sizes: list[int]) -> list[int]:
        """Return how many rows of a tensor are each rank's: ``sizes``, or equally many if there are none."""
        rows = tensor.shape[0] if tensor.dim() > 0 else 0
        if tensor.dim() == 0 or (not sizes and rows % self._world_size != 0):
            raise self.invalid(
                f"a tensor of shape {tuple(tensor.shape)} has no equal parts for {self._world_size} ranks; "
                "pass split sizes"
            )
        if not sizes:
            return [rows // self._world_size] * self._world_size
        self._one_per_rank(sizes)
        if min(sizes) < 0 or sum(sizes) != rows:
            raise self.invalid(f"split sizes {sizes} do not add up to the tensor's {rows} rows")
        return sizes

    def reduction(self, tensor: Tensor, opts: Any) -> str:
        """Return the communicator's name for a reduction of a tensor, which it takes as :func:`elements`."""
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        name = next((name for known, name in _REDUCTIONS.items() if op == known), None)
        if name is None:
            raise self.unsupported(f"no reduction {_operator(op)}; use SUM, AVG, MIN, MAX or PRODUCT")
        if tensor.dtype == torch.bool:
            if name not in _OF_BOOL:
                raise self.unsupported(f"no reduction {_operator(op)} of booleans; use SUM, MIN, MAX or PRODUCT")
            name = _OF_BOOL[name]
        self.contiguous(tensor)
        self._element(elements(tensor).dtype)
        return name

    def _element(self, dtype: torch.dtype) -> None:
        try:
            # The library has the list of types: this refuses others, and uses no memory.
            At(0, 0, dtype)
        except InvalidArgument as error:
            raise self.invalid(str(error)) from None


def elements(tensor: Tensor) -> Tensor:
    """Return a tensor as the communicator reduces it: booleans as bytes."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
