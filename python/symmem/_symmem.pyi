"""The native module. What is public is in the package itself."""

from collections.abc import Sequence
from typing import Any, Protocol

__version__: str

class _HasDtypeName(Protocol):
    @property
    def name(self) -> str: ...

# A dtype of NumPy or PyTorch, or its name.
_Dtype = str | type | _HasDtypeName | Any
# A stream of PyTorch, CuPy, cuda.core or symmem, or its number.
_Stream = int | Stream | Any
# A buffer, a tensor or array of this rank's device, or `At`.
_Operand = Any

class At:
    """Memory of this rank's device at an address, with as many elements, as an operand that costs little to pass.

    The memory must stay until the stream has passed the work.
    """

    def __new__(cls, address: int, count: int, dtype: _Dtype) -> At: ...

class Stream:
    """A stream of symmem's: work that runs in order."""

    @property
    def cuda_stream(self) -> int:
        """The stream's number in the driver's API."""
    def __cuda_stream__(self) -> tuple[int, int]: ...
    def synchronize(self, timeout: float | None = None) -> None:
        """Block until the stream's work is done, for at most ``timeout`` seconds or the communicator's deadline."""

class PeerBuffer:
    """A rank's copy of a buffer, or a part of it, which array libraries take by DLPack."""

    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Buffer:
    """Memory that every rank has, and can reach at every other: a buffer, or some rows of one.

    ``torch.from_dlpack(buffer)`` is a tensor of it, as ``cupy.from_dlpack`` and, on the host, ``numpy.from_dlpack`` are.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int:
        """The address of this rank's copy."""
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> Buffer: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def write(self, array: Any, stream: _Stream | None = None) -> None:
        """Copy an array of the host's into this rank's copy. Blocks until the bytes are there."""
    def read(self, array: Any, stream: _Stream | None = None) -> None:
        """Copy this rank's copy into an array of the host's. Blocks until the bytes are there."""
    def free(self) -> None:
        """Free the buffer at all ranks. Collective: all ranks call it, in the same order; blocks until they have.

        Raises BufferError while tensors or parts of it exist.
        """
    @property
    def buffer_ptrs(self) -> list[int]:
        """The addresses of all ranks' copies, as this rank's device reaches them."""
    @property
    def buffer_ptrs_dev(self) -> int:
        """The address in device memory at which the addresses of all ranks' whole buffers are, 8 bytes each."""
    @property
    def signal_pad_ptrs(self) -> list[int]:
        """The addresses of all ranks' signal pads: zeroed 32-bit words for kernels of the program's."""
    @property
    def signal_pad_ptrs_dev(self) -> int:
        """The address in device memory at which the addresses of all ranks' signal pads are, 8 bytes each."""
    @property
    def signal_pad_size(self) -> int:
        """Bytes of a signal pad."""
    def get_buffer(
        self,
        rank: int,
        sizes: Sequence[int] | None = None,
        dtype: _Dtype | None = None,
        storage_offset: int = 0,
    ) -> PeerBuffer:
        """Return the copy of a rank, or a part of it: ``torch.from_dlpack(buffer.get_buffer(1))``."""
    def get_signal_pad(self, rank: int) -> PeerBuffer:
        """Return the signal pad of a rank, as 32-bit words."""

class AllGatherGemm:
    """An all-gather + GEMM of one shape, from ``Communicator.all_gather_gemm``: C[m, n] = A[m, k] * B[k, n] (+ bias).

    Each rank has a shard of A's rows, in ``shard``, its own B and its own C. Calls of one operation are ordered, by one stream
    or by events.
    """

    @property
    def shard(self) -> Buffer:
        """The buffer of this rank's rows of A: ceil(m / world_size) rows, of which the last rank may use fewer."""
    def explain(self) -> str:
        """Return how the operation works."""
    def __call__(
        self,
        b: _Operand,
        c: _Operand,
        bias: _Operand | None = None,
        *,
        stream: _Stream | None = None,
    ) -> None:
        """Enqueue the operation. ``b`` is stored by rows, or by columns if it was prepared so; ``c`` by rows."""

class GemmReduce:
    """A GEMM of one shape whose results are added up over the ranks, from ``Communicator.gemm_reduce_scatter`` or
    ``gemm_all_reduce``: C = sum of all ranks' A[m, k] * B[k, n] (+ bias).

    Each rank has its own A and B. Calls of one operation are ordered, by one stream or by events.
    """

    def explain(self) -> str:
        """Return how the operation works."""
    def __call__(
        self,
        a: _Operand,
        b: _Operand,
        c: _Operand,
        bias: _Operand | None = None,
        *,
        stream: _Stream | None = None,
    ) -> None:
        """Enqueue the operation. ``b`` is stored by rows, or by columns if it was prepared so; ``a`` and ``c`` by rows."""

class Products:
    """The operations that operators have prepared, as long as an object of a communicator's number lives."""

    def __new__(cls, communicator: int) -> Products: ...

class Communicator:
    """This rank's membership in a world of ranks. :func:`symmem.init` makes it.

    Every rank makes the same collective calls in the same order. Calls are enqueued on ``stream``, or on the current stream of
    the library whose tensors they get, and return; over the host backend without a stream they return when they are done. An
    operand is a :class:`Buffer` or any contiguous tensor of this rank's device. If one operand of a call is a tensor, all ranks
    pass a tensor there, but each may pass any.
    """

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def backend(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def number(self) -> int:
        """The number by which operators of PyTorch know the communicator."""
    def allocate(self, shape: int | Sequence[int], dtype: _Dtype) -> Buffer:
        """Allocate a zeroed buffer at every rank. Collective; blocks until all ranks have called it."""
    def register(self, tensor: Any) -> Buffer:
        """Make the memory of a tensor symmetric, which may be at another address at each rank. Collective; blocks.

        The tensor is kept until this rank frees the buffer.
        """
    def all_gather_gemm(
        self,
        m: int,
        n: int,
        k: int,
        dtype: _Dtype,
        *,
        b_columns: bool = False,
        bias: bool = False,
    ) -> AllGatherGemm:
        """Prepare an all-gather + GEMM of float16 or bfloat16. Collective; blocks, and tries candidates.

        ``b_columns``: B is stored by columns, as the transpose of a contiguous weight is. ``bias``: a row is added.
        """
    def gemm_reduce_scatter(
        self,
        m: int,
        n: int,
        k: int,
        dtype: _Dtype,
        *,
        b_columns: bool = False,
        bias: bool = False,
        symmetric_result: bool = False,
        algorithm: str | None = None,
        transport: str | None = None,
        streams: int | None = None,
        chunks: int | None = None,
        partials: str | None = None,
    ) -> GemmReduce:
        """Prepare a GEMM + reduce-scatter of float16 or bfloat16: each rank gets m / world_size rows of the sum. Collective;
        blocks, and tries candidates.

        ``k`` is this rank's columns of A. ``b_columns``: B is stored by columns, as the transpose of a contiguous weight is.
        ``bias``: a row is added once. ``symmetric_result``: ``c`` is a buffer, the same at all ranks. ``algorithm`` is
        ``"baseline"``, ``"pipeline"``, or one kernel, if the device has it: ``"push"`` for many rows, ``"packets"`` for few.
        ``transport`` of a pipeline is ``"put"`` or ``"kernel"``, ``streams`` the number of its streams, ``chunks`` the parts of a
        rank's rows; ``partials`` is ``"element"``, or ``"f32"`` if a kernel sends parts of the sum without rounding them. The
        library chooses what is left out.
        """
    def gemm_all_reduce(
        self,
        m: int,
        n: int,
        k: int,
        dtype: _Dtype,
        *,
        b_columns: bool = False,
        bias: bool = False,
        symmetric_result: bool = False,
        algorithm: str | None = None,
        transport: str | None = None,
        streams: int | None = None,
        chunks: int | None = None,
        partials: str | None = None,
    ) -> GemmReduce:
        """Prepare a GEMM + all-reduce: :meth:`gemm_reduce_scatter` where all ranks get all m rows, with the same bits."""
    def stream(self) -> Stream: ...
    def all_reduce(
        self,
        destination: _Operand,
        source: _Operand | None = None,
        *,
        op: str = "sum",
        stream: _Stream | None = None,
    ) -> None:
        """Reduce the sources of all ranks into the destination at all ranks; in place without a source.

        ``op``: sum, average, minimum, maximum or product.
        """
    def reduce(
        self,
        root: int,
        destination: _Operand,
        source: _Operand | None = None,
        *,
        op: str = "sum",
        stream: _Stream | None = None,
    ) -> None:
        """Reduce the sources of all ranks into the destination at rank ``root``."""
    def reduce_scatter(
        self,
        destination: _Operand,
        source: _Operand,
        *,
        op: str = "sum",
        stream: _Stream | None = None,
    ) -> None:
        """Reduce the sources of all ranks; rank r gets part r. The source is a destination for each rank."""
    def all_gather(
        self, destination: _Operand, source: _Operand, *, stream: _Stream | None = None
    ) -> None:
        """Copy the sources of all ranks into the destination of all ranks, in rank order."""
    def all_to_all(
        self, destination: _Operand, source: _Operand, *, stream: _Stream | None = None
    ) -> None:
        """Copy part r of the source of rank s into part s of the destination of rank r."""
    def broadcast(
        self,
        root: int,
        destination: _Operand,
        source: _Operand | None = None,
        *,
        stream: _Stream | None = None,
    ) -> None:
        """Copy the source of rank ``root`` into the destination of all ranks."""
    def gather(
        self,
        root: int,
        destination: _Operand,
        source: _Operand,
        *,
        stream: _Stream | None = None,
    ) -> None:
        """Copy the sources of all ranks into the destination of rank ``root``, in rank order."""
    def scatter(
        self,
        root: int,
        destination: _Operand,
        source: _Operand,
        *,
        stream: _Stream | None = None,
    ) -> None:
        """Copy part r of the source of rank ``root`` into the destination of rank r."""
    def send(self, peer: int, source: _Operand, *, stream: _Stream | None = None) -> None:
        """Send a tensor to a rank that receives it."""
    def recv(self, peer: int, destination: _Operand, *, stream: _Stream | None = None) -> None:
        """Receive a tensor that a rank sends."""
    def exchange(
        self,
        sends: Sequence[tuple[int, _Operand]],
        recvs: Sequence[tuple[int, _Operand]],
        *,
        stream: _Stream | None = None,
    ) -> None:
        """Send and receive several tensors at once, each with the rank that it goes to or comes from."""
    def put(
        self, peer: int, destination: Buffer, source: _Operand, *, stream: _Stream | None = None
    ) -> None:
        """Copy this rank's ``source`` to ``destination`` at ``peer``."""
    def get(
        self, peer: int, destination: _Operand, source: Buffer, *, stream: _Stream | None = None
    ) -> None:
        """Copy ``source`` at ``peer`` to this rank's ``destination``."""
    def put_signal(
        self,
        peer: int,
        destination: Buffer,
        source: _Operand,
        channel: int = 0,
        *,
        stream: _Stream | None = None,
    ) -> None:
        """:meth:`put`, then a signal to ``peer`` on ``channel``, once the elements are there."""
    def wait_signal(self, peer: int, channel: int = 0, *, stream: _Stream | None = None) -> None:
        """Let the stream wait for one signal of ``peer`` on ``channel``, for at most the communicator's deadline."""
    def barrier(self, channel: int = 0, *, stream: _Stream | None = None) -> None:
        """Let later work of the stream start once the streams of all ranks have reached it."""
    def host_barrier(self) -> None:
        """Block until every rank has called it. Does not wait for work of the device."""
    def check(self) -> None:
        """Raise the error that ended the communicator, if one has. Does not block."""
    def abort(self) -> None:
        """End all waits of all ranks. Later calls are errors: here Aborted, elsewhere PeerFailed."""
    def __enter__(self) -> Communicator: ...
    def __exit__(self, *raised: object) -> None:
        """Finalize after a block that ended well, else leave."""
    def finalize(self) -> None:
        """Leave in good order. Blocks until all ranks have called it."""
    def leave(self) -> None:
        """Leave at once, without waiting for the other ranks."""
    def rebuild(self) -> None:
        """Make this a communicator of the ranks that are left. Collective over those; buffers and streams are gone."""
    @staticmethod
    def check_all() -> None:
        """Raise the error of any communicator of this process, if one has ended one."""

def join(
    rank: int | None,
    world_size: int | None,
    job: str | None,
    backend: str | None,
    device: int | None,
    deadline: float | None,
    setup_deadline: float | None,
    check_calls: bool | None,
) -> Communicator: ...
def main(words: Sequence[str], file: str, arguments: Sequence[str]) -> int: ...
def register_operators(cpu: str, gpu: str | None) -> None: ...
def take_allocation_failure() -> str | None: ...
def take_exception() -> Exception | None: ...

reductions: Sequence[tuple[str, int]]
