"""What a rank does, by name: python programs.py NAME. A rank that returns has found everything right."""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symmem

PROGRAMS: dict[str, Callable[[symmem.Communicator], None]] = {}
TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def program(body: Callable[[symmem.Communicator], None]) -> Callable[[symmem.Communicator], None]:
    PROGRAMS[body.__name__] = body
    return body


@program
def collectives_take_arrays_of_every_type(c: symmem.Communicator) -> None:
    rank, world = c.rank, c.world_size
    for dtype in TYPES:
        x = np.full(37, rank + 1, dtype)
        c.all_reduce(x)
        assert (x == world * (world + 1) // 2).all(), dtype
        y = np.zeros(37, dtype)
        c.all_reduce(y, np.full(37, rank + 1, dtype), op="max")
        assert (y == world).all(), dtype
        rows = np.zeros((world, 5), dtype)
        c.all_gather(rows, np.full(5, rank, dtype))
        assert (rows == np.arange(world)[:, None]).all(), dtype
        part = np.zeros(5, dtype)
        c.reduce_scatter(part, np.repeat(np.arange(world), 5).astype(dtype))
        assert (part == rank * world).all(), dtype
        theirs = np.zeros((world, 3), dtype)
        c.all_to_all(theirs, np.full((world, 3), rank, dtype))
        assert (theirs == np.arange(world)[:, None]).all(), dtype


@program
def collectives_of_one_root_work(c: symmem.Communicator) -> None:
    rank, world = c.rank, c.world_size
    for root in range(world):
        x = np.full(9, rank, "float32")
        c.broadcast(root, x)
        assert (x == root).all()
        total = np.zeros(9, "float32")
        c.reduce(root, total, np.full(9, rank + 1, "float32"))
        assert rank != root or (total == world * (world + 1) / 2).all()
        all_rows = np.zeros((world, 9), "float32")
        c.gather(root, all_rows, np.full(9, rank, "float32"))
        assert rank != root or (all_rows == np.arange(world)[:, None]).all()
        mine = np.zeros(9, "float32")
        c.scatter(root, mine, np.repeat(np.arange(world), 9).astype("float32"))
        assert (mine == rank).all()


@program
def buffers_are_arrays_without_a_copy(c: symmem.Communicator) -> None:
    buffer = c.allocate((4, 3), "float32")
    assert buffer.shape == (4, 3) and buffer.nbytes == 48 and len(buffer) == 4
    array = np.from_dlpack(buffer)
    assert (array == 0).all() and array.shape == (4, 3)
    array[:] = c.rank + 1
    c.host_barrier()
    c.all_reduce(buffer)
    assert (array == c.world_size * (c.world_size + 1) / 2).all()
    assert np.asarray(buffer).ctypes.data == array.ctypes.data == buffer.address
    rows = buffer[1:3]
    assert rows.shape == (2, 3) and rows.address == buffer.address + 12
    with pytest.raises(BufferError, match="delete them"):
        buffer.free()
    del array, rows
    buffer.free()
    with pytest.raises(symmem.InvalidArgument, match="freed"):
        _ = buffer.address


@program
def buffers_are_written_and_read(c: symmem.Communicator) -> None:
    buffer = c.allocate(8, "int32")
    stream = c.stream()
    buffer.write(np.arange(8, dtype="int32"))
    seen = np.zeros(8, "int32")
    buffer.read(seen, stream=stream)
    assert (seen == np.arange(8)).all()
    for wrong in [np.zeros(7, "int32"), np.zeros(8, "float32"), np.zeros(16, "int32")[::2], "no array"]:
        with pytest.raises(symmem.InvalidArgument):
            buffer.write(wrong)
    seen.flags.writeable = False
    with pytest.raises(symmem.InvalidArgument, match="read-only"):
        buffer.read(seen)
    c.host_barrier()
    buffer.free()


@program
def puts_and_signals_go_around_a_ring(c: symmem.Communicator) -> None:
    rank, world = c.rank, c.world_size
    inbox, outbox = c.allocate(16, "float64"), c.allocate(16, "float64")
    np.from_dlpack(outbox)[:] = rank
    c.put_signal((rank + 1) % world, inbox, outbox)
    c.wait_signal((rank - 1) % world)
    assert (np.from_dlpack(inbox) == (rank - 1) % world).all()
    c.barrier()
    c.get((rank + 1) % world, inbox[:8], outbox[8:])
    c.put(rank, inbox[8:], outbox[:8])
    c.barrier()
    assert (np.from_dlpack(inbox) == [(rank + 1) % world] * 8 + [rank] * 8).all()
    theirs = np.from_dlpack(outbox.get_buffer((rank + 1) % world, [2, 2], "float64", 3))
    assert theirs.shape == (2, 2) and (theirs == (rank + 1) % world).all()
    del theirs
    c.host_barrier()
    # This rank's side may be any array.
    own = np.arange(16.0) + 100 * rank
    c.put((rank + 1) % world, inbox, own)
    c.barrier()
    back = np.zeros(16)
    c.get((rank + 1) % world, back, inbox)
    assert (back == own).all()
    with pytest.raises(symmem.InvalidArgument, match="float32"):
        c.put(rank, inbox, own.astype("float32"))
    with pytest.raises(symmem.InvalidArgument, match="contiguous"):
        c.put(rank, inbox[:8], own[::2])
    with pytest.raises(TypeError):
        c.put(rank, own, inbox)  # type: ignore[arg-type]
    c.host_barrier()
    inbox.free()
    outbox.free()


@program
def ranks_send_what_others_receive(c: symmem.Communicator) -> None:
    rank, world = c.rank, c.world_size
    if world > 1:
        x = np.full(100, rank, "int64")
        for sender in range(world):
            receiver = (sender + 1) % world
            if rank == sender:
                c.send(receiver, np.full(100, sender, "int64"))
            elif rank == receiver:
                c.recv(sender, x)
        assert (x == (rank - 1) % world).all()


@program
def kernels_find_all_ranks_memory(c: symmem.Communicator) -> None:
    rank, world = c.rank, c.world_size
    buffer = c.allocate(4, "uint32")
    np.from_dlpack(buffer)[:] = rank
    pads = [np.from_dlpack(buffer.get_signal_pad(peer)) for peer in range(world)]
    assert all((pad == 0).all() and pad.nbytes == buffer.signal_pad_size for pad in pads)
    c.host_barrier()
    pads[(rank + 1) % world][rank] = 7
    c.host_barrier()
    assert pads[rank][(rank - 1) % world] == 7 and (pads[rank] != 0).sum() == 1
    assert buffer.buffer_ptrs[rank] == buffer.address and len(set(buffer.buffer_ptrs)) == world
    assert buffer.signal_pad_ptrs[rank] == pads[rank].ctypes.data
    words = [buffer.buffer_ptrs_dev, buffer.signal_pad_ptrs_dev]
    tables = [(ctypes.c_uint64 * world).from_address(at) for at in words]
    assert list(tables[0]) == buffer.buffer_ptrs and list(tables[1]) == buffer.signal_pad_ptrs
    c.host_barrier()
    del pads, tables
    buffer.free()


@program
def a_product_gathers_its_rows(c: symmem.Communicator) -> None:
    rank, world = c.rank, c.world_size
    m, n, k = 4 * world, 6, 8
    a = np.arange(m * k).reshape(m, k).astype("float16") % 5
    b = (np.arange(k * n).reshape(k, n) % 3 + rank).astype("float16")
    bias = np.arange(n).astype("float16")
    for b_columns in [False, True]:
        gemm = c.all_gather_gemm(m, n, k, "float16", b_columns=b_columns, bias=True)
        assert gemm.shard.shape == (4, k) and gemm.explain()
        np.asarray(gemm.shard)[:] = a[4 * rank : 4 * rank + 4]
        result = np.zeros((m, n), "float16")
        gemm(np.ascontiguousarray(b.T) if b_columns else b, result, bias)
        assert (result == a @ b + bias).all()
        with pytest.raises(symmem.InvalidArgument, match="takes"):
            gemm(b[:-1], result, bias)
        with pytest.raises(symmem.InvalidArgument, match="bias"):
            gemm(b, result)
    with pytest.raises(symmem.InvalidArgument, match="float32"):
        c.all_gather_gemm(m, n, k, "float32")
    with pytest.raises(symmem.InvalidArgument):
        c.all_gather_gemm(0, n, k, "float16")


@program
def products_are_added_up(c: symmem.Communicator) -> None:
    rank, world = c.rank, c.world_size
    m, n, k = 4 * world, 6, 8
    all_a = [(np.arange(m * k).reshape(m, k) % 5 + one).astype("float16") for one in range(world)]
    all_b = [(np.arange(k * n).reshape(k, n) % 3 - one).astype("float16") for one in range(world)]
    bias = np.arange(n).astype("float16")
    expected = sum(a @ b for a, b in zip(all_a, all_b, strict=True)) + bias
    for make, own in [(c.gemm_reduce_scatter, slice(4 * rank, 4 * rank + 4)), (c.gemm_all_reduce, slice(m))]:
        for options in [
            {},
            {"algorithm": "pipeline", "transport": "kernel", "streams": 2, "chunks": 2},
            {"algorithm": "push", "partials": "f32"},
            {"algorithm": "packets", "partials": "element"},
        ]:
            for symmetric in [False, True]:
                gemm = make(m, n, k, "float16", bias=True, symmetric_result=symmetric, **options)  # type: ignore[arg-type]
                assert gemm.explain()
                result = c.allocate(expected[own].shape, "float16") if symmetric else np.zeros(expected[own].shape, "float16")
                gemm(all_a[rank], all_b[rank], result, bias)
                assert (np.asarray(result) == expected[own]).all()
                with pytest.raises(symmem.InvalidArgument, match="takes"):
                    gemm(all_a[rank][:-1], all_b[rank], result, bias)
                with pytest.raises(symmem.InvalidArgument, match="bias"):
                    gemm(all_a[rank], all_b[rank], result)
                c.host_barrier()
    with pytest.raises(symmem.InvalidArgument, match="baseline"):
        c.gemm_all_reduce(m, n, k, "float16", algorithm="fastest")
    with pytest.raises(TypeError, match="option"):
        c.gemm_all_reduce(m, n, k, "float16", chunk=2)  # type: ignore[call-arg]


@program
def private_memory_of_the_host_is_not_shareable(c: symmem.Communicator) -> None:
    with pytest.raises(symmem.NotShareable, match="private memory"):
        c.register(np.full(1 << 16, c.rank, "float32"))
    buffer = c.allocate(8, "float32")
    again = c.register(np.from_dlpack(buffer))
    assert again.buffer_ptrs[c.rank] == buffer.address
    with pytest.raises(BufferError):
        buffer.free()
    again.free()
    buffer.free()


class LostStream:
    """A stream of a communicator that has left."""

    def __init__(self) -> None:
        communicator = symmem.init(rank=0, world_size=1, backend="host")
        self._stream = communicator.stream()
        communicator.leave()

    def stream(self) -> symmem.Stream:
        with pytest.raises(symmem.InvalidArgument, match="left"):
            _ = self._stream.cuda_stream
        return self._stream


@program
def communicators_share_streams(c: symmem.Communicator) -> None:
    other = symmem.init(rank=0, world_size=1, backend="host")
    stream, x = other.stream(), np.ones(100)
    other.all_reduce(x, stream=stream)
    c.all_reduce(x, stream=stream)
    # The stream lives as long as a communicator has worked on it.
    other.finalize()
    c.all_reduce(x)
    assert (x == c.world_size**2).all()


@program
def arrays_of_numpy_are_made_as_it_asks(c: symmem.Communicator) -> None:
    buffer = c.allocate((2, 3), "f4")
    np.asarray(buffer, dtype="float32")[:] = 5
    assert (np.asarray(buffer) == 5).all()
    wide = np.asarray(buffer, dtype="float64")
    copy = np.array(buffer, copy=True)
    wide[:], copy[:] = 6, 7
    assert wide.dtype == np.float64 and (np.asarray(buffer) == 5).all()
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(buffer, dtype="float64", copy=False)
    with pytest.raises(TypeError, match="begin:end"):
        _ = buffer[0]  # type: ignore[index]
    with pytest.raises(TypeError, match="no dimension"):
        len(c.allocate((), "int8"))


@program
def wrong_arguments_raise_and_the_communicator_lives(c: symmem.Communicator) -> None:
    x = np.zeros(8, "float32")
    frozen = np.zeros(8, "float32")
    frozen.flags.writeable = False
    # The elements are 5 bytes apart.
    packed = np.zeros(8, [("a", "float32"), ("b", "int8")])
    stranger = LostStream()
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: c.all_reduce(np.zeros((8, 8))[:, 0]), "contiguous"),
        (lambda: c.all_reduce(np.zeros(8, ">f4")), "element type"),
        (lambda: c.all_reduce(np.zeros(8, "complex64")), "element type"),
        (lambda: c.all_reduce(np.zeros(8, "bool")), "element type"),
        (lambda: c.all_reduce(frozen), "read-only"),
        (lambda: c.all_reduce("no array"), "is a str"),
        (lambda: c.all_reduce(None), "NoneType"),
        (lambda: c.all_reduce([1.0, 2.0]), "is a list"),
        (lambda: c.all_reduce(x, np.zeros(8, "float64")), "float64"),
        (lambda: c.all_reduce(x, np.zeros(9, "float32")), "9"),
        (lambda: c.all_reduce(x[:6], x[2:]), "overlap"),
        (lambda: c.all_reduce(x, op="xor"), "reduction"),
        (lambda: c.all_gather(np.zeros(8 * c.world_size + 1, "float32"), x), "the source 8"),
        (lambda: c.broadcast(c.world_size, x), "rank"),
        (lambda: c.broadcast(2**40, x), "rank"),
        (lambda: c.all_reduce(symmem.At(0, 8, "float32")), "no such memory"),
        (lambda: c.all_reduce(symmem.At(8, 2**62, "float64")), "no memory"),
        (lambda: symmem.At(8, 8, "float3"), "element type"),
        (lambda: c.allocate((1 << 40, 1 << 40), "float32"), "shape"),
        (lambda: c.all_reduce(x, stream="now"), "stream"),
        (lambda: c.stream().synchronize(-1.0), "duration"),
        (lambda: c.all_reduce(x, stream=-1), "stream"),
        (lambda: c.all_reduce(x, stream=8), "no stream of this communicator"),
        (lambda: c.all_reduce(x, stream=stranger.stream()), "finalized, left or rebuilt"),
        (lambda: c.allocate(-1, "int8"), "-1 is out of range"),
        (lambda: c.allocate((2, -1), "int8"), "-1 is out of range"),
        (lambda: c.allocate((0, 1 << 40, 1 << 40), "int8"), "shape"),
        (lambda: c.send(-1, x), "-1 is out of range"),
        (lambda: c.broadcast(-1, x), "-1 is out of range"),
        (lambda: c.barrier(-1), "-1 is out of range"),
        (lambda: c.barrier(99), "channel 99"),
        (lambda: c.all_reduce(symmem.At(8, 8, "float32")), "no memory"),
        (lambda: c.all_reduce(packed["a"]), "contiguous"),
        (lambda: c.exchange([], [(0, x[:4]), (0, x[2:6])]), "same memory"),
        (lambda: c.allocate(8, "int8").write(bytes(8)), "frombuffer"),
    ]
    for call, message in wrong:
        with pytest.raises(symmem.InvalidArgument, match=message) as raised:
            call()
        assert isinstance(raised.value, ValueError)
    c.all_reduce(np.zeros(0, "float32"))
    c.all_reduce(np.zeros((), "float32"))
    c.all_reduce(x)
    assert (x == 0).all()


@program
def shapes_that_differ_are_a_mismatch(c: symmem.Communicator) -> None:
    if c.world_size > 1:
        with pytest.raises(symmem.Mismatch) as raised:
            c.allocate(8 + c.rank, "float32")
        assert raised.value.rank == c.rank and raised.value.peer is not None
    c.allocate(8, "float32").free()


@program
def sizes_that_differ_are_a_mismatch_in_debug_mode(c: symmem.Communicator) -> None:
    debug = symmem.init(
        rank=c.rank, world_size=c.world_size, job=f"debug of {os.environ['SYMMEM_JOB']}", backend="host", check_calls=True
    )
    if c.world_size > 1:
        with pytest.raises(symmem.Mismatch):
            debug.all_reduce(np.zeros(8 + c.rank, "float32"))
    debug.all_reduce(np.zeros(8, "float32"))
    debug.finalize()


@program
def streams_are_ordered_and_waited_for(c: symmem.Communicator) -> None:
    one, other = c.stream(), c.stream()
    x = np.ones(1000, "float64")
    for _ in range(20):
        c.all_reduce(x, op="average", stream=one)
        c.all_reduce(x, op="max", stream=other)
        c.all_reduce(x, op="min", stream=one.cuda_stream)
    one.synchronize(timeout=60)
    other.synchronize()
    assert (x == 1).all()
    # Work keeps its arrays.
    for _ in range(200):
        c.all_reduce(np.ones(10_000, "float64"), stream=one)
    del one, other
    c.all_reduce(x, op="max")


@program
def a_finalized_communicator_says_so(c: symmem.Communicator) -> None:
    buffer, stream = c.allocate(8, "int8"), c.stream()
    with pytest.warns(ResourceWarning, match="1 buffer"):
        c.finalize()
    calls: list[Callable[[], object]] = [
        c.finalize,
        c.check,
        c.host_barrier,
        stream.synchronize,
        lambda: c.allocate(8, "int8"),
        lambda: c.all_reduce(buffer),
        lambda: buffer.rank,
    ]
    for call in calls:
        with pytest.raises(symmem.InvalidArgument, match="finalized"):
            call()
    assert "finalized" in repr(c)


@program
def a_block_leaves_in_good_order_or_at_once(c: symmem.Communicator) -> None:
    with c as same:
        assert same is c
        c.all_reduce(np.ones(8))
    with pytest.raises(symmem.InvalidArgument, match="finalized"):
        c.check()
    # Nobody waits for a rank whose block failed.
    with pytest.raises(ZeroDivisionError), symmem.init(rank=0, world_size=1, backend="host") as alone:
        _ = 1 / 0
    assert "finalized" in repr(alone)


@program
def an_abort_ends_the_others_waits(c: symmem.Communicator) -> None:
    if c.rank == 0:
        c.abort()
        with pytest.raises(symmem.Aborted):
            c.host_barrier()
    else:
        with pytest.raises(symmem.PeerFailed) as raised:
            c.wait_signal(0)
        assert raised.value.peer == 0
    c.leave()


@program
def a_death_is_reported_and_survivors_go_on(c: symmem.Communicator) -> None:
    if c.world_size == 1:
        return
    if c.rank == c.world_size - 1:
        os._exit(0)
    began = time.monotonic()
    with pytest.raises(symmem.PeerDied) as raised, symmem.guard():
        c.all_reduce(np.ones(64, "float32"))
    assert raised.value.peer == c.world_size - 1
    with pytest.raises(symmem.PeerDied):
        symmem.check()
    assert time.monotonic() - began < 30
    c.rebuild()
    x = np.ones(64, "float32")
    c.all_reduce(x)
    assert (x == c.world_size).all()


def main(name: str, **how: Any) -> None:
    communicator = symmem.init(**how)
    PROGRAMS[name](communicator)


if __name__ == "__main__":
    main(sys.argv[1])
