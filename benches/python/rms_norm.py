"""Times an all-reduce of rows with residual and RMSNorm in CUDA graphs, beside all-reduces followed by a compiled norm.

symmem run -n 2 -- python benches/python/rms_norm.py --json out.json

Calls are in place, bf16, each contender's in a graph of its own; graphs are replayed in turn. Times are of the slowest rank.
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

# Each shape is compiled.
torch._dynamo.config.recompile_limit = 1000
CALLS = 20
EPSILON = 1e-5
LARGEST = 4096 * 8192


@torch.compile(dynamic=False)
def norm_(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> None:
    total = x.float() + residual.float()
    residual.copy_(total)
    factor = torch.rsqrt(total.square().mean(-1, keepdim=True) + EPSILON)
    x.copy_(total * factor * weight.float())


def capture(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file for the times")
    parser.add_argument("--hidden", type=int, nargs="*", default=[8192, 7168, 6144, 4096, 2048])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replays", type=int, default=20)
    asked = parser.parse_args()
    communicator = symmem.init()
    rank, world = communicator.rank, communicator.world_size
    torch.cuda.set_device(communicator.device)
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29531", rank=rank, world_size=world,
        device_id=torch.device("cuda", communicator.device),
    )  # fmt: skip
    group = symmem.torch.Group(communicator)
    symmetric = symm_mem.empty(LARGEST, dtype=torch.bfloat16, device="cuda")
    symm_mem.rendezvous(symmetric, dist.group.WORLD)
    name = dist.group.WORLD.group_name
    scale = torch.ones(1, device="cuda")
    rows_of = []
    for hidden in asked.hidden:
        weight = torch.rand(hidden, device="cuda").bfloat16()
        dist.broadcast(weight, 0)
        for rows in asked.rows:
            count = rows * hidden
            if count > LARGEST:
                continue
            torch.manual_seed(rank)
            data = torch.randn(rows, hidden, device="cuda").bfloat16()
            torch.manual_seed(100)
            old = torch.randn(rows, hidden, device="cuda").bfloat16()
            x, residual = data.clone(), old.clone()
            shared = symmetric[:count].view(rows, hidden)

            def by_two_shot() -> None:
                torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", name)
                norm_(shared, residual, weight)

            def by_one_shot() -> None:
                norm_(torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", name), residual, weight)

            def by_nccl() -> None:
                dist.all_reduce(x)
                norm_(x, residual, weight)

            def by_parts() -> None:
                group.all_reduce_(x)
                norm_(x, residual, weight)

            contenders: dict[str, Callable[[], object]] = {
                "symmem fused": lambda: group.all_reduce_rms_norm_(x, residual, weight, EPSILON),
                "symmem fused, 8 bits, one scale": lambda: group.all_reduce_rms_norm_f8(x, residual, weight, scale, EPSILON),
                "symmem fused, 8 bits, a scale a row": lambda: group.all_reduce_rms_norm_f8(x, residual, weight),
                "symmem fused, 8 bits, a scale for 128": lambda: group.all_reduce_rms_norm_f8(
                    x, residual, weight, groups=True
                ),
                "symmem all-reduce alone": lambda: group.all_reduce_(x),
                "symmem all-reduce, then norm": by_parts,
                "NCCL, then norm": by_nccl,
                "PyTorch one-shot, then norm": by_one_shot,
                "PyTorch two-shot, then norm": by_two_shot,
            }
            x.copy_(data)
            residual.copy_(old)
            group.all_reduce_rms_norm_(x, residual, weight, EPSILON)
            total = group.all_reduce(data.float()) + old.float()
            assert (residual == total.bfloat16()).all(), (rows, hidden)
            y = residual.float()
            expected = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPSILON) * weight.float()
            torch.testing.assert_close(x, expected.bfloat16(), rtol=1 / 128, atol=1e-4)
            # Numbers that stay finite however often they are added up.
            for tensor in (x, residual, shared):
                tensor.zero_()
            graphs = {label: capture(call) for label, call in contenders.items()}
            times: dict[str, list[float]] = {label: [] for label in graphs}
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(asked.rounds):
                for label, graph in graphs.items():
                    graph.replay()
                    dist.barrier()
                    begin.record()
                    for _ in range(asked.replays):
                        graph.replay()
                    end.record()
                    end.synchronize()
                    times[label].append(begin.elapsed_time(end) * 1e3 / asked.replays / CALLS)
            of = {}
            for label in graphs:
                slowest = torch.tensor(times[label], device="cuda")
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                found = sorted(slowest.tolist())
                of[label] = statistics.median(found)
                rows_of.append(
                    {
                        "hidden": hidden, "rows": rows, "contender": label,
                        "us": of[label], "min_us": found[0], "max_us": found[-1],
                    }
                )  # fmt: skip
            if rank == 0:
                print(f"{hidden:5} x {rows:4}: " + ", ".join(f"{label} {us:.2f}" for label, us in of.items()), flush=True)
    if rank == 0 and asked.json:
        with open(asked.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows_of}, file, indent=1)
    communicator.leave()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
