"""What a rank does with tensors of PyTorch, by name: python torch_programs.py NAME. On this rank's GPU, or on the host."""

import functools
import os
import sys
import time
from collections.abc import Callable

import pytest
import torch

import symmem
import symmem.torch

PROGRAMS: dict[str, Callable[[symmem.torch.Group], None]] = {}
TYPES = [
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


def program(body: Callable[[symmem.torch.Group], None]) -> Callable[[symmem.torch.Group], None]:
    PROGRAMS[body.__name__] = body
    return body


def on_gpu() -> bool:
    return str(torch.get_default_device()).startswith("cuda")


@program
def operators_give_what_all_ranks_have(g: symmem.torch.Group) -> None:
    rank, world = g.rank, g.world
    for dtype in TYPES:
        x = torch.full((6, 4), rank + 1, dtype=dtype)
        total = world * (world + 1) // 2
        assert (g.all_reduce(x) == total).all() and (x == rank + 1).all()
        assert g.all_reduce_(x) is x and (x == total).all()
        assert (g.all_reduce(torch.full((3,), rank, dtype=dtype), "max") == world - 1).all()
        mine = torch.full((2, 3), rank, dtype=dtype)
        rows = torch.arange(world).repeat_interleave(2)[:, None].to(dtype)
        assert (g.all_gather(mine) == rows).all() and g.all_gather(mine).shape == (2 * world, 3)
        parts = rows.expand(-1, 3).contiguous()
        assert (g.reduce_scatter(parts) == rank * world).all()
        assert (g.all_to_all(torch.full((2 * world, 3), rank, dtype=dtype)) == rows).all()
        out = torch.empty(2 * world, 3, dtype=dtype)
        assert (g.all_gather_into(out, mine) == rows).all()
        assert (g.reduce_scatter_into(mine, parts) == rank * world).all()
        assert (g.all_to_all_into(out, torch.full((2 * world, 3), rank, dtype=dtype)) == rows).all()
    assert (g.all_gather(torch.tensor(rank)) == torch.arange(world)).all()
    assert g.all_reduce(torch.empty(0, 5)).shape == (0, 5)


@program
def the_communicator_takes_tensors(g: symmem.torch.Group) -> None:
    c = g.communicator
    x = torch.full((1000,), float(g.rank + 1), dtype=torch.bfloat16)
    c.all_reduce(x)
    assert (x == g.world * (g.world + 1) / 2).all()
    buffer = c.allocate((16, 8), torch.bfloat16)
    tensor = torch.from_dlpack(buffer)
    assert tensor.dtype == torch.bfloat16 and tensor.shape == (16, 8) and tensor.device.type == x.device.type
    tensor.fill_(g.rank)
    c.barrier()
    theirs = torch.from_dlpack(buffer.get_buffer((g.rank + 1) % g.world))
    assert (theirs == (g.rank + 1) % g.world).all()
    c.barrier()
    at = symmem.At(tensor.data_ptr(), tensor.numel(), tensor.dtype)
    c.all_reduce(at)
    assert (tensor == g.world * (g.world - 1) / 2).all()
    del tensor, theirs
    buffer.free()


@program
def wrong_tensors_raise_before_anything_is_enqueued(g: symmem.torch.Group) -> None:
    x = torch.zeros(8, 8)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: g.all_reduce(x.t()), "contiguous"),
        (lambda: g.all_reduce_(x[:, 0]), "contiguous"),
        (lambda: g.all_reduce(x.to(torch.complex64)), "element type"),
        (lambda: g.all_reduce(x.to(torch.bool)), "element type"),
        (lambda: g.all_gather_into(torch.zeros(8 * g.world, 8, dtype=torch.float64), x), ""),
        (lambda: g.all_gather_into(torch.zeros(8 * g.world + 1, 8), x), ""),
        (lambda: g.all_to_all_into(torch.zeros(9), torch.zeros(8)), "8"),
        (lambda: g.communicator.all_reduce(x.t()), "contiguous"),
        (lambda: g.communicator.all_reduce(x[:, 0]), "contiguous"),
        (lambda: g.communicator.all_reduce(x.to(torch.complex64)), "element type"),
    ]
    if g.world > 1:
        wrong += [
            (lambda: g.reduce_scatter(torch.zeros(g.world + 1)), "split"),
            (lambda: g.all_to_all(torch.zeros(g.world + 1)), "split"),
        ]
    if on_gpu():
        wrong += [
            (lambda: g.all_reduce(torch.zeros(8, device="cpu")), "host's memory"),
            (lambda: g.communicator.all_reduce(torch.zeros(8, device="cpu")), "host's memory"),
        ]
        others = [i for i in range(torch.cuda.device_count()) if i != g.communicator.device]
        for other in others[:1]:
            there = torch.zeros(8, device=f"cuda:{other}")
            wrong.append((lambda: g.all_reduce(there), "is on device"))
            wrong.append((lambda: g.communicator.all_reduce(there), "is on device"))
    for call, message in wrong:
        with pytest.raises(symmem.InvalidArgument, match=message or None):
            call()
    with pytest.raises(ValueError, match="reduction"):
        g.all_reduce(x, "xor")
    assert (g.all_reduce(torch.ones(8)) == g.world).all()


@program
def compiled_code_has_no_graph_break(g: symmem.torch.Group) -> None:
    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = g.all_reduce(x @ w)
        y = g.all_gather(torch.relu(y))
        y = g.reduce_scatter(y * 2)
        y = g.all_to_all(y)
        z = y + 1
        g.all_reduce_(z, "average")
        return z.sin()

    torch.manual_seed(0)
    x, w = torch.randn(4 * g.world, 16), torch.randn(16, 16)
    expected = layer(x, w)
    backends = ["aot_eager", "inductor"] if on_gpu() else ["aot_eager"]
    for backend in backends:
        compiled = torch.compile(layer, fullgraph=True, backend=backend)
        for _ in range(3):
            torch.testing.assert_close(compiled(x, w), expected)


@program
def a_product_gathers_its_rows(g: symmem.torch.Group) -> None:
    torch.manual_seed(3)
    a = torch.randn(16 * g.world, 64).bfloat16()
    weight = torch.randn(32, 64).bfloat16()
    mine = a[16 * g.rank : 16 * g.rank + 16]
    for b in [weight.t(), weight.t().contiguous()]:
        torch.testing.assert_close(g.all_gather_matmul(mine, b), a @ b, rtol=2e-2, atol=2e-1)
    compiled = torch.compile(lambda x: g.all_gather_matmul(x * 2, weight.t()) + 1, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(mine), (a * 2) @ weight.t() + 1, rtol=2e-2, atol=4e-1)
    a_32, b = mine.float(), weight.t()
    wrong: list[tuple[str, torch.Tensor, torch.Tensor]] = [
        ("columns", mine, weight),
        ("dimensions", mine[0], b),
        ("a is not contiguous", a.t()[:, :16].t()[:, ::2], b),
        ("neither", mine, torch.zeros(64, 64, dtype=torch.bfloat16)[:, ::2]),
        ("Bf16", a_32, b),
        ("float32", a_32, b.float()),
    ]
    for text, one, other in wrong:
        with pytest.raises(ValueError, match=text):
            g.all_gather_matmul(one, other)
    assert g.all_gather_matmul(mine[:0], b).shape == (0, 32)
    torch.testing.assert_close(g.all_gather_matmul(mine, b), a @ b, rtol=2e-2, atol=2e-1)
    if on_gpu():
        graph, c = torch.cuda.CUDAGraph(), torch.empty(0)
        with torch.cuda.graph(graph):
            c = g.all_gather_matmul(mine, b)
        for _ in range(3):
            c.zero_()
            graph.replay()
            torch.testing.assert_close(c, a @ b, rtol=2e-2, atol=2e-1)
        with pytest.raises(ValueError, match="capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            g.all_gather_matmul(mine[:8], b)
        torch.cuda.synchronize()
        g.all_reduce(torch.ones(8))


@program
def products_are_added_up(g: symmem.torch.Group) -> None:
    rows, k, n = 16 * g.world, 64, 32
    torch.manual_seed(3)
    all_a = torch.randn(g.world, rows, k).bfloat16()
    all_b = torch.randn(g.world, n, k).bfloat16()
    expected = sum(a.float() @ b.float().t() for a, b in zip(all_a, all_b, strict=True))
    assert isinstance(expected, torch.Tensor)
    mine = slice(16 * g.rank, 16 * g.rank + 16)
    a, weight = all_a[g.rank], all_b[g.rank]
    close = functools.partial(torch.testing.assert_close, rtol=2e-2, atol=0.5)
    for b in [weight.t(), weight.t().contiguous()]:
        close(g.matmul_reduce_scatter(a, b).float(), expected[mine])
        total = g.matmul_all_reduce(a, b)
        close(total.float(), expected)
        gathered = g.all_gather(total)
        assert all(torch.equal(part, total) for part in gathered.chunk(g.world)), "the same bits on all ranks"

    def layer(x: torch.Tensor) -> torch.Tensor:
        return g.matmul_reduce_scatter(x, weight.t()) + g.matmul_all_reduce(x, weight.t())[mine]

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    close(compiled(a).float(), 2 * expected[mine])
    odd = a[: rows - 1]
    close(g.matmul_all_reduce(odd, weight.t()).float(), expected[: rows - 1])
    wrong: list[tuple[str, torch.Tensor, torch.Tensor]] = [
        ("columns", a, weight),
        ("dimensions", a[0], weight.t()),
        ("Bf16", a.float(), weight.t()),
        ("float32", a.float(), weight.t().float()),
    ]
    if g.world > 1:
        wrong.append(("equal parts", odd, weight.t()))
    for text, one, other in wrong:
        with pytest.raises(ValueError, match=text):
            g.matmul_reduce_scatter(one, other)
    assert g.matmul_reduce_scatter(a[:0], weight.t()).shape == (0, n)
    if on_gpu():
        graph, c = torch.cuda.CUDAGraph(), torch.empty(0)
        with torch.cuda.graph(graph):
            c = g.matmul_reduce_scatter(a, weight.t())
        for _ in range(3):
            c.zero_()
            graph.replay()
            close(c.float(), expected[mine])


@program
def rows_are_summed_and_normalised(g: symmem.torch.Group) -> None:
    torch.manual_seed(4)
    for rows, hidden in [(1, 64), (5, 4096), (3, 8192), (2, 77), (300, 1024)]:
        inputs = torch.randn(g.world, rows, hidden).bfloat16()
        residual, weight = torch.randn(rows, hidden).bfloat16(), torch.rand(hidden).bfloat16()
        total = (inputs.float().sum(0) + residual.float()).bfloat16()
        expected = torch.nn.functional.rms_norm(total.float(), (hidden,), weight.float() + 1, 1e-6).bfloat16()
        close = {"rtol": 1 / 64, "atol": 1e-3}
        mine = inputs[g.rank].clone()
        out, sums = g.all_reduce_rms_norm(mine, residual, weight, 1e-6, weight_offset=1)
        torch.testing.assert_close(sums, total, **close)
        torch.testing.assert_close(out, expected, **close)
        torch.testing.assert_close(mine, inputs[g.rank], rtol=0, atol=0)
        all_outs = g.all_gather(out.unsqueeze(0))
        assert (all_outs == out).all()
        same = g.all_reduce_rms_norm_(mine, residual, weight, 1e-6, weight_offset=1)
        assert same is mine and (mine == out).all() and (residual == sums).all()
    x, r, w = torch.ones(4, 32), torch.ones(4, 32), torch.ones(32)
    wrong: list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]] = [
        ("contiguous", torch.ones(32, 4).t(), r, w),
        ("same sizes", x, torch.ones(5, 32), w),
        ("rows must have", x, r, torch.ones(16)),
        ("Bf16", x, r.bfloat16(), w),
        ("float64", x.double(), r.double(), w.double()),
        ("overlaps", x, x, w),
    ]
    for text, *tensors in wrong:
        with pytest.raises(ValueError, match=text):
            g.all_reduce_rms_norm_(*tensors)

    def layer(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y, r = g.all_reduce_rms_norm(x * 2, r, w)
        g.all_reduce_rms_norm_(y, r, w)
        return y + r

    compiled = torch.compile(layer, fullgraph=True, backend="inductor" if on_gpu() else "aot_eager")
    torch.testing.assert_close(compiled(x, r, w), layer(x, r, w))


@program
def rows_become_8_bit_numbers_with_scales(g: symmem.torch.Group) -> None:
    torch.manual_seed(5)
    for rows, hidden in [(1, 128), (5, 4096), (3, 8192), (7, 384)]:
        inputs = torch.randn(g.world, rows, hidden).bfloat16()
        residual, weight = torch.randn(rows, hidden).bfloat16(), torch.rand(hidden).bfloat16()
        wide, sums = g.all_reduce_rms_norm(inputs[g.rank], residual, weight)
        for name in ["tensor", "rows", "groups"]:
            kept = residual.clone()
            scale = torch.full((1,), 0.02) if name == "tensor" else None
            found, scales = g.all_reduce_rms_norm_f8(inputs[g.rank], kept, weight, scale, groups=name == "groups")
            assert (kept == sums).all() and found.shape == (rows, hidden) and found.dtype == torch.float8_e4m3fn
            assert scales.shape == {"tensor": (1,), "rows": (rows, 1), "groups": (rows, hidden // 128)}[name]
            part = {"tensor": rows * hidden, "rows": hidden, "groups": 128}[name]
            numbers = (found.float().view(-1, part) * scales.view(-1, 1)).view(rows, hidden)
            # Three bits of mantissa, and what bfloat16 has rounded already.
            torch.testing.assert_close(numbers, wide.float(), rtol=1 / 14, atol=2e-4)
            if name != "tensor":
                largest = found.float().view(-1, part).abs().amax(1)
                assert (largest == 448).all()
    x, r, w = torch.ones(2, 100), torch.ones(2, 100), torch.ones(100)
    with pytest.raises(ValueError, match="128"):
        g.all_reduce_rms_norm_f8(x, r, w, groups=True)
    with pytest.raises(ValueError, match="scales"):
        g.all_reduce_rms_norm_f8(x, r, w, torch.ones(2))
    with pytest.raises(ValueError, match="F32"):
        g.all_reduce_rms_norm_f8(x, r, w, torch.ones(1).half())

    def layer(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        numbers, scales = g.all_reduce_rms_norm_f8(x * 2, r, w)
        return numbers.float() * scales + r

    compiled = torch.compile(layer, fullgraph=True, backend="inductor" if on_gpu() else "aot_eager")
    torch.testing.assert_close(compiled(x, r.clone(), w), layer(x, r.clone(), w))


@program
def autograd_notices_what_changes_in_place(g: symmem.torch.Group) -> None:
    x = torch.ones(8, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    g.all_reduce_(y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


@program
def memory_does_not_grow(g: symmem.torch.Group) -> None:
    x = torch.zeros(1024)
    wrong = torch.zeros(8, 8).t()
    before = 0
    for turn in range(3000):
        g.all_reduce_(x)
        g.all_reduce(x)
        with pytest.raises(symmem.InvalidArgument):
            g.all_reduce(wrong)
        if turn == 1000:
            before = resident()
    assert resident() - before < 4 << 20
    assert not on_gpu() or torch.cuda.memory_allocated() < 1 << 20


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@program
def tensors_of_a_pool_become_symmetric(g: symmem.torch.Group) -> None:
    if not on_gpu():
        return
    c, pool = g.communicator, torch.cuda.MemPool(symmem.torch.allocator().allocator())
    with torch.cuda.use_mem_pool(pool):
        # Not the same at all ranks: segments and offsets differ.
        spare = [torch.empty(1 << 20, device="cuda") for _ in range(1 + 2 * g.rank)]
        tensor = torch.full((1 << 18,), float(g.rank), device="cuda")
    buffer = c.register(tensor)
    assert buffer.address == tensor.data_ptr() and buffer.buffer_ptrs[g.rank] == tensor.data_ptr()
    c.barrier()
    theirs = torch.from_dlpack(buffer.get_buffer((g.rank + 1) % g.world))
    assert (theirs == (g.rank + 1) % g.world).all()
    c.barrier()
    c.all_reduce(buffer)
    assert (tensor == g.world * (g.world - 1) / 2).all()
    torch.cuda.synchronize()
    c.host_barrier()
    del theirs
    buffer.free()
    del spare, tensor
    before = 0
    for turn in range(1100):
        with torch.cuda.use_mem_pool(pool):
            one = torch.empty(1 << 18, device="cuda")
        buffer = c.register(one)
        buffer.free()
        del one, buffer
        if turn == 100:
            torch.cuda.synchronize()
            before = torch.cuda.mem_get_info()[0]
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 8 << 20
    del pool


@program
def a_death_ends_operators_graphs_and_waits(g: symmem.torch.Group) -> None:
    if g.world == 1:
        return
    x = torch.ones(1024)
    g.all_reduce_(x)
    graph = torch.cuda.CUDAGraph() if on_gpu() else None
    if graph is not None:
        with torch.cuda.graph(graph):
            g.all_reduce_(x)
        graph.replay()
        torch.cuda.synchronize()
    g.communicator.host_barrier()
    if g.rank == g.world - 1:
        os._exit(0)
    began = time.monotonic()
    with pytest.raises(symmem.PeerDied) as raised, symmem.guard():
        for _ in range(3):
            if graph is not None:
                graph.replay()
                torch.cuda.synchronize()
            else:
                g.all_reduce_(x)
    took = time.monotonic() - began
    print(f"PeerDied after {took:.3f} s")
    assert raised.value.peer == g.world - 1 and took < 30
    with pytest.raises(symmem.PeerDied):
        g.all_reduce(x)
    with pytest.raises(symmem.PeerDied):
        symmem.check()


@program
def sizes_that_differ_end_in_a_timeout(g: symmem.torch.Group) -> None:
    c = symmem.init(
        rank=g.rank,
        world_size=g.world,
        job=f"sizes of {os.environ['SYMMEM_JOB']}",
        backend=g.communicator.backend,
        device=g.communicator.device if on_gpu() else None,
        deadline=1,
    )
    other = symmem.torch.Group(c)
    if g.world == 1:
        other.all_reduce(torch.ones(8))
        return
    with pytest.raises(symmem.Error) as raised:
        # A rank that has all it needs may be through at once, and hears of it later.
        other.all_reduce(torch.ones(8 if g.rank == 0 else 8192))
        for _ in range(600):
            c.check()
            time.sleep(0.1)
    error = raised.value
    if g.rank == 1:
        assert isinstance(error, symmem.Timeout) and isinstance(error, TimeoutError)
        assert error.rank == 1 and error.peer == 0 and "all_reduce" in str(error)
    else:
        assert isinstance(error, symmem.Timeout | symmem.PeerFailed)
    # The other communicator lives.
    torch.testing.assert_close(g.all_reduce(torch.ones(8)), torch.full((8,), float(g.world)))


@program
def a_finalized_communicator_is_refused(g: symmem.torch.Group) -> None:
    g.communicator.finalize()
    with pytest.raises(symmem.InvalidArgument, match="finalized"):
        g.all_reduce(torch.zeros(8))


def main(name: str) -> None:
    communicator = symmem.init()
    if communicator.backend != "host":
        torch.cuda.set_device(communicator.device)
        torch.set_default_device(f"cuda:{communicator.device}")
    PROGRAMS[name](symmem.torch.Group(communicator))


if __name__ == "__main__":
    main(sys.argv[1])
