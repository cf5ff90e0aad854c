"""Times GEMM + reduce-scatter and GEMM + all-reduce in CUDA graphs, beside a GEMM followed by NCCL, and PyTorch's operators.

symmem run -n 2 -- python benches/python/gemm_reduce.py --json out.json

A shape is M x N x K, where K is a rank's part. Elements are bf16; B is the transpose of a contiguous weight. Each contender has
a graph of its own; graphs are replayed in turn. Times are of the slowest rank. "symmem" is the selector's choice; with --ways,
each algorithm, transport and number of chunks is timed too.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem
import symmem.torch

SHAPES = [
    "16x8192x14336", "64x8192x14336", "128x8192x14336", "512x8192x14336", "2048x8192x14336", "8192x8192x14336",
    "16384x8192x14336", "2048x8192x4096", "8192x8192x4096", "8192x8192x8192",
]  # fmt: skip
WAYS = [
    ("pipeline", transport, streams, chunks)
    for transport, streams, chunks in (
        ("put", 1, 2), ("put", 1, 3), ("put", 1, 4), ("put", 2, 2), ("put", 2, 4), ("kernel", 1, 2), ("kernel", 2, 2),
    )
]


def capture(call: Callable[[], object], calls: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def times_of(graphs: dict[str, torch.cuda.CUDAGraph], calls: int, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            graph.replay()
            torch.cuda.synchronize()
            dist.barrier()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / 2 / calls)
    slowest = torch.tensor(list(times.values()), device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return dict(zip(times, slowest.tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file for the times")
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ways", action="store_true", help="time every way of symmem's")
    asked = parser.parse_args()
    communicator = symmem.init()
    rank, world = communicator.rank, communicator.world_size
    torch.cuda.set_device(communicator.device)
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29532", rank=rank, world_size=world,
        device_id=torch.device("cuda", communicator.device),
    )  # fmt: skip
    name = dist.group.WORLD.group_name
    group = symmem.torch.Group(communicator)
    results = []
    for text in asked.shapes:
        m, n, k = map(int, text.split("x"))
        torch.manual_seed(rank)
        a = torch.randn(m, k, device="cuda").bfloat16()
        b = (torch.randn(n, k, device="cuda") / k**0.5).bfloat16().t()
        whole, part = torch.empty(m, n, device="cuda").bfloat16(), torch.empty(m // world, n, device="cuda").bfloat16()
        buffer = communicator.allocate((m, n), "bfloat16")
        symmetric = torch.from_dlpack(buffer)
        shared = symm_mem.empty(m, n, dtype=torch.bfloat16, device="cuda")
        symm_mem.rendezvous(shared, name)
        calls = 10 if m <= 512 else 2

        def serial_scatter() -> None:
            torch.mm(a, b, out=whole)
            dist.reduce_scatter_tensor(part, whole)

        def serial_all() -> None:
            torch.mm(a, b, out=whole)
            dist.all_reduce(whole)

        def own_scatter() -> None:
            torch.mm(a, b, out=symmetric)
            communicator.reduce_scatter(part, buffer)

        def own_all() -> None:
            torch.mm(a, b, out=symmetric)
            communicator.all_reduce(buffer)

        def two_shot() -> None:
            torch.mm(a, b, out=shared)
            torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", name)

        def one_shot() -> None:
            torch.mm(a, b, out=shared)
            torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", name)

        contenders: dict[str, Callable[[], object]] = {
            "GEMM": lambda: torch.mm(a, b, out=whole),
            "reduce-scatter": lambda: communicator.reduce_scatter(part, buffer),
            "all-reduce": lambda: communicator.all_reduce(buffer),
            "rs: symmem operator": lambda: group.matmul_reduce_scatter(a, b),
            "rs: GEMM, then NCCL": serial_scatter,
            "rs: GEMM, then symmem": own_scatter,
            "ar: symmem operator": lambda: group.matmul_all_reduce(a, b),
            "ar: GEMM, then NCCL": serial_all,
            "ar: GEMM, then symmem": own_all,
            "ar: GEMM, then PyTorch two-shot": two_shot,
        }
        if m <= 512:
            contenders["ar: GEMM, then PyTorch one-shot"] = one_shot
        contenders["rs: PyTorch fused"] = lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, name)
        ways: list[tuple[str, dict[str, object]]] = [("symmem", {})]
        if asked.ways:
            ways.append(("baseline", {"algorithm": "baseline"}))
            if m >= 512:
                ways += [
                    (f"{transport} {streams}s {chunks}c", dict(
                        algorithm=algorithm, transport=transport, streams=streams, chunks=chunks,
                    ))
                    for algorithm, transport, streams, chunks in WAYS
                ]  # fmt: skip
        operations = []

        def prepare(way: dict[str, object], scatters: bool) -> Callable[[], object]:
            make = communicator.gemm_reduce_scatter if scatters else communicator.gemm_all_reduce
            operation = make(m, n, k, "bfloat16", b_columns=True, symmetric_result=True, **way)  # type: ignore[arg-type]
            result = buffer[: m // world] if scatters else buffer
            operations.append((operation, result))
            weight = b.t()
            return lambda: operation(a, weight, result)

        for title, way in ways:
            contenders[f"rs: {title}"] = prepare(way, True)
            contenders[f"ar: {title}"] = prepare(way, False)
        torch.cuda.synchronize()
        total = (a.double() if m <= 512 else a) @ (b.double() if m <= 512 else b)
        total = total.float()
        dist.all_reduce(total)
        mine = slice(rank * m // world, (rank + 1) * m // world)
        for title, _ in ways:
            symmetric.fill_(float("nan"))
            contenders[f"rs: {title}"]()
            torch.testing.assert_close(symmetric[: m // world].float(), total[mine], rtol=3e-2, atol=6e-2)
            dist.barrier()
            symmetric.fill_(float("nan"))
            torch.cuda.synchronize()
            dist.barrier()
            contenders[f"ar: {title}"]()
            torch.testing.assert_close(symmetric.float(), total, rtol=3e-2, atol=6e-2)
            torch.cuda.synchronize()
            dist.barrier()
        del total
        graphs = {title: capture(call, calls) for title, call in contenders.items()}
        times = times_of(graphs, calls, asked.rounds)
        medians = {title: statistics.median(all_times) for title, all_times in times.items()}
        if rank == 0:
            results.append({"m": m, "n": n, "k": k, "us": times})
            print(f"{text}: " + ", ".join(f"{title} {us:.1f}" for title, us in medians.items()), flush=True)
            chosen = [operation.explain().splitlines()[2] for operation, _ in operations[:2]]
            print(f"  chosen: {chosen}", flush=True)
        torch.cuda.synchronize()
        dist.barrier()
        del graphs, contenders, operations, symmetric
        torch.cuda.synchronize()
        dist.barrier()
    if rank == 0 and asked.json:
        with open(asked.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": results}, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
