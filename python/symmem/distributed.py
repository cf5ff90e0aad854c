"""symmem as a backend of ``torch.distributed``.

>>> import symmem.distributed
>>> torch.distributed.init_process_group("symmem")

Collectives on GPU tensors are symmem's, those on tensors in the host's memory Gloo's; without a GPU symmem's host backend
does what it can of those, too. Each group has a communicator of its own.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from . import init
from .errors import Unsupported

__all__ = ["ProcessGroup"]

_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "average",
    dist.ReduceOp.MIN: "minimum",
    dist.ReduceOp.MAX: "maximum",
    dist.ReduceOp.PRODUCT: "product",
}
# Sums of truth values are "any", products "all".
_OF_BOOL = {"sum": "maximum", "maximum": "maximum", "product": "minimum", "minimum": "minimum"}


def _reduction(op: Any) -> str:
    for known, name in _REDUCTIONS.items():
        if op == known:
            return name
    raise Unsupported(f"there is no reduction {op}; use SUM, AVG, MIN, MAX or PRODUCT")


def _bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's memory for a call that only moves it, whatever its element type."""
    return tensor.view(torch.uint8) if tensor.dim() > 0 else tensor.reshape(1).view(torch.uint8)


def _each(tensors: Sequence[Tensor], call: Callable[[Tensor], None]) -> None:
    for tensor in tensors:
        call(tensor)


class _Message(dist.Work):
    """A send or receive, which is enqueued together with others before somebody waits for it.

    So two ranks may each send first and receive then: neither's receive waits behind its send.
    """

    def __init__(self, group: "ProcessGroup") -> None:
        super().__init__()
        self._group = group
        self.work: Any = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Let the current stream wait for the message."""
        self._group.enqueue_messages()
        return bool(self.work.wait())

    def is_completed(self) -> bool:
        """Return whether the message was sent or received."""
        self._group.enqueue_messages()
        return bool(self.work.is_completed())

    def get_future(self) -> Any:
        """Return the message's future."""
        self._group.enqueue_messages()
        return self.work.get_future()


class ProcessGroup(dist.ProcessGroup):
    """A process group on a communicator, and on a group of Gloo's for what that does not do."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        # As ranks of one job meet: under a name that no other group has.
        if rank == 0:
            store.set("symmem job", secrets.token_hex(16))
        job = store.get("symmem job").decode()
        on_gpu = torch.cuda.is_available() and os.environ.get("SYMMEM_BACKEND") != "host"
        self.communicator = init(
            rank=rank,
            world_size=size,
            job=job,
            backend=None if on_gpu else "host",
            device=torch.cuda.current_device() if on_gpu else None,
            deadline=timeout.total_seconds(),
        )
        self._on_gpu = on_gpu
        self._stream = torch.cuda.Stream() if on_gpu else None
        self._sends: list[tuple[int, Tensor]] = []
        self._recvs: list[tuple[int, Tensor]] = []
        self._messages: list[_Message] = []

    def name(self) -> str:
        """Return the name of the backend."""
        return "symmem"

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return "symmem"

    def _does(self, *tensors: Tensor) -> bool:
        """Return whether the communicator takes these tensors; else they are Gloo's."""
        return all(tensor.is_cuda == self._on_gpu for tensor in tensors)

    def _work(self, tensors: Sequence[Tensor], opts: Any, call: Callable[[], object]) -> Any:
        """Make calls, and return their work.

        They are enqueued on the current stream if the program waits for them at once, else beside it, so that a backward pass
        goes on meanwhile.
        """
        self.enqueue_messages()
        future: Future[list[Tensor]]
        if self._stream is None:
            call()
            future = Future()
            future.set_result(list(tensors))
        else:
            future = Future(devices=[self._stream.device])
            stream = self._stream if getattr(opts, "asyncOp", False) else torch.cuda.current_stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                call()
                for tensor in tensors:
                    tensor.record_stream(stream)
                future.set_result(list(tensors))
        return _create_work_from_future(future)

    def _reduce_in_place(self, tensor: Tensor, op: str) -> None:
        if tensor.dtype == torch.bool:
            self.communicator.all_reduce(tensor.view(torch.uint8), op=_OF_BOOL[op])
        else:
            self.communicator.all_reduce(tensor, op=op)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce tensors in place."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        if not self._does(*tensors):
            return self._gloo.allreduce(tensors, opts or dist.AllreduceOptions())
        op = "sum" if opts is None else _reduction(opts.reduceOp)
        return self._work(tensors, opts, lambda: _each(tensors, lambda tensor: self._reduce_in_place(tensor, op)))

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Reduce tensors in place."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any) -> Any:
        """Copy the root's tensors to all ranks."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        if not self._does(*tensors):
            return self._gloo.broadcast(tensors, opts)
        root = opts.rootRank
        return self._work(
            tensors, opts, lambda: _each(tensors, lambda tensor: self.communicator.broadcast(root, _bytes(tensor)))
        )

    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        """Reduce tensors in place at the root."""
        if not self._does(*tensors):
            return self._gloo.reduce(tensors, opts)
        op = _reduction(opts.reduceOp)
        return self._work(
            tensors, opts, lambda: _each(tensors, lambda tensor: self.communicator.reduce(opts.rootRank, tensor, op=op))
        )

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        if not self._does(output, input):
            return self._gloo._allgather_base(output, input, opts or dist.AllgatherOptions())
        return self._work(
            [output, input], opts, lambda: self.communicator.all_gather(_bytes(output), _bytes(input))
        )

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        """Gather the inputs of all ranks."""
        if not self._does(*inputs):
            return self._gloo.allgather(outputs, inputs, opts or dist.AllgatherOptions())

        def call() -> None:
            for parts, tensor in zip(outputs, inputs, strict=True):
                flat = tensor.new_empty((self.size(), tensor.numel()))
                self.communicator.all_gather(_bytes(flat), _bytes(tensor))
                for part, row in zip(parts, flat, strict=True):
                    part.copy_(row.view_as(part))

        return self._work([*inputs, *(part for parts in outputs for part in parts)], opts, call)

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        """Gather the inputs of all ranks, each into one tensor."""
        if not self._does(*inputs):
            return self._gloo.allgather_into_tensor_coalesced(outputs, inputs, opts)

        def call() -> None:
            for output, input in zip(outputs, inputs, strict=True):
                self.communicator.all_gather(_bytes(output), _bytes(input))

        return self._work([*outputs, *inputs], opts, call)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        if not self._does(output, input):
            return self._gloo._reduce_scatter_base(output, input, opts or dist.ReduceScatterOptions())
        op = "sum" if opts is None else _reduction(opts.reduceOp)
        return self._work(
            [output, input], opts, lambda: self.communicator.reduce_scatter(output, input, op=op)
        )

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        """Reduce the inputs of all ranks; each rank gets its part."""
        if not self._does(*outputs):
            return self._gloo.reduce_scatter(outputs, inputs, opts or dist.ReduceScatterOptions())
        op = "sum" if opts is None else _reduction(opts.reduceOp)

        def call() -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                flat = torch.stack([part.reshape(-1) for part in parts])
                self.communicator.reduce_scatter(output, flat, op=op)

        return self._work([*outputs, *(part for parts in inputs for part in parts)], opts, call)

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        """Reduce the inputs of all ranks; each rank gets its part of each."""
        op = "sum" if opts is None else _reduction(opts.reduceOp)

        def call() -> None:
            for output, input in zip(outputs, inputs, strict=True):
                self.communicator.reduce_scatter(output, input, op=op)

        return self._work([*outputs, *inputs], opts, call)

    def _exchange(self, outputs: list[Tensor], inputs: list[Tensor]) -> None:
        own = self.rank()
        outputs[own].copy_(inputs[own])
        others = [peer for peer in range(self.size()) if peer != own]
        self.communicator.exchange(
            [(peer, _bytes(inputs[peer])) for peer in others if inputs[peer].numel() > 0],
            [(peer, _bytes(outputs[peer])) for peer in others if outputs[peer].numel() > 0],
        )

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Any:
        """Send each rank its rows."""
        if not self._does(output, input):
            return self._gloo.alltoall_base(
                output, input, output_splits, input_splits, opts or dist.AllToAllOptions()
            )

        def call() -> None:
            if output_splits or input_splits:
                even = [output.shape[0] // self.size()] * self.size()
                self._exchange(
                    list(output.split(output_splits or even)), list(input.split(input_splits or even))
                )
            else:
                self.communicator.all_to_all(_bytes(output), _bytes(input))

        return self._work([output, input], opts, call)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        """Send each rank its tensor."""
        if not self._does(*inputs):
            return self._gloo.alltoall(outputs, inputs, opts or dist.AllToAllOptions())
        return self._work([*outputs, *inputs], opts, lambda: self._exchange(outputs, inputs))

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        """Gather the inputs of all ranks at the root."""
        if not self._does(*inputs):
            return self._gloo.gather(outputs, inputs, opts)
        tensor = inputs[0]

        def call() -> None:
            flat = tensor.new_empty((self.size(), tensor.numel()))
            self.communicator.gather(opts.rootRank, _bytes(flat), _bytes(tensor))
            if self.rank() == opts.rootRank:
                for part, row in zip(outputs[0], flat, strict=True):
                    part.copy_(row.view_as(part))

        return self._work([tensor, *(outputs[0] if outputs else [])], opts, call)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        """Send each rank the root's tensor for it."""
        if not self._does(*outputs):
            return self._gloo.scatter(outputs, inputs, opts)
        tensor = outputs[0]

        def call() -> None:
            if self.rank() == opts.rootRank:
                flat = torch.stack([part.reshape(-1) for part in inputs[0]])
            else:
                flat = tensor.new_empty((self.size(), tensor.numel()))
            self.communicator.scatter(opts.rootRank, _bytes(tensor), _bytes(flat))

        return self._work([tensor, *(inputs[0] if inputs else [])], opts, call)

    def enqueue_messages(self) -> None:
        """Enqueue the sends and receives of before, as one call."""
        sends, recvs, messages = self._sends, self._recvs, self._messages
        if messages:
            self._sends, self._recvs, self._messages = [], [], []
            tensors = [tensor for _, tensor in sends + recvs]
            work = self._work(tensors, None, lambda: self.communicator.exchange(sends, recvs))
            for message in messages:
                message.work = work

    def _message(self, messages: list[tuple[int, Tensor]], peer: int, tensors: list[Tensor]) -> _Message:
        message = _Message(self)
        messages.extend((peer, _bytes(tensor)) for tensor in tensors)
        self._messages.append(message)
        return message

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> Any:
        """Send tensors. Tags other than 0 are Gloo's, which has them for tensors of the host."""
        if not self._does(*tensors) or tag != 0:
            return self._gloo.send(tensors, peer, tag)
        return self._message(self._sends, peer, tensors)

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> Any:
        """Receive tensors."""
        if not self._does(*tensors) or tag != 0:
            return self._gloo.recv(tensors, peer, tag)
        return self._message(self._recvs, peer, tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Any:
        """Receive a tensor of any rank: Gloo's, of the host's memory only."""
        return self._gloo.recv_anysource(tensors, tag)

    def barrier(self, opts: Any = None) -> Any:
        """Return once all ranks have called it, and the device has done this rank's work."""
        self.enqueue_messages()
        if self._on_gpu:
            torch.cuda.synchronize()
        self.communicator.host_barrier()
        future: Future[list[Tensor]] = Future()
        future.set_result([])
        return _create_work_from_future(future)

    def shutdown(self) -> None:
        """Leave: the other ranks need not come."""
        self.enqueue_messages()
        self.communicator.leave()

    def abort(self) -> None:
        """End all waits of all ranks."""
        self.communicator.abort()


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    return ProcessGroup(store, rank, size, timeout)


dist.Backend.register_backend("symmem", _create, devices=["cpu", "cuda"])
