"""Programs of several ranks on arrays of CuPy and JAX: symmem run -n 2 -- python array_programs.py NAME."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symmem

PROGRAMS: dict[str, Callable[[symmem.Communicator], None]] = {}


def program(body: Callable[[symmem.Communicator], None]) -> Callable[[symmem.Communicator], None]:
    PROGRAMS[body.__name__] = body
    return body


@program
def cupy_arrays(c: symmem.Communicator) -> None:
    import cupy

    cupy.cuda.Device(c.device).use()
    rank, world = c.rank, c.world_size
    expected = np.arange(1000) * world + sum(range(world))
    for dtype in ["float16", "float32", "float64", "int32", "uint8"]:
        x = (cupy.arange(1000) % 50).astype(dtype)
        c.all_reduce(x)
        assert (x.get() == (np.arange(1000) % 50).astype(dtype) * world).all()
    x = cupy.arange(1000, dtype="float64") + rank
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(20):
            # On the current stream, behind what made the array.
            y = cupy.arange(1000, dtype="float64") + rank
            c.all_reduce(y)
            y += 1
        stream.synchronize()
    assert (y.get() == expected + 1).all()
    c.all_reduce(x, stream=cupy.cuda.get_current_stream())
    assert (x.get() == expected).all()

    buffer = c.allocate(1000, "float64")
    same = cupy.from_dlpack(buffer)
    same[:] = rank
    c.barrier()
    theirs = cupy.empty(1000)
    c.get((rank + 1) % world, theirs, buffer)
    assert (theirs.get() == (rank + 1) % world).all()
    c.barrier()
    c.put((rank + 1) % world, buffer[:10], x[:10])
    c.barrier()
    assert (same[:10].get() == expected[:10]).all() and (same[10:].get() == rank).all()
    for wrong in [x[::2], np.zeros(10), cupy.zeros(10, "complex64")]:
        with pytest.raises(symmem.InvalidArgument):
            c.all_reduce(wrong)
    c.all_reduce(x)
    c.host_barrier()
    del same
    buffer.free()


@program
def jax_arrays(c: symmem.Communicator) -> None:
    import jax
    import jax.numpy as jnp

    rank, world = c.rank, c.world_size
    device = jax.devices("cpu" if c.backend == "host" else "gpu")[c.device if c.backend != "host" else 0]
    stream = c.stream()
    with jax.default_device(device):
        for dtype in ["float32", "int32", "bfloat16"]:
            x: Any = jnp.ones(1000, dtype) * (rank + 1)
            sums = c.allocate(1000, dtype)
            c.all_reduce(sums[:], x, stream=stream)
            stream.synchronize()
            seen = np.asarray(jax.dlpack.from_dlpack(sums), dtype="float32")
            assert (seen == world * (world + 1) / 2).all()
            with pytest.raises(symmem.InvalidArgument, match="immutable"):
                c.all_reduce(x)
            assert (np.asarray(x, dtype="float32") == rank + 1).all()
        inbox = c.allocate(1000, "float32")
        c.put((rank + 1) % world, inbox, jnp.full(1000, rank, "float32"), stream=stream)
        c.barrier(stream=stream)
        stream.synchronize()
        assert (np.asarray(jax.dlpack.from_dlpack(inbox)) == (rank - 1) % world).all()
        c.host_barrier()


def main(name: str) -> None:
    PROGRAMS[name](symmem.init())


if __name__ == "__main__":
    main(sys.argv[1])
