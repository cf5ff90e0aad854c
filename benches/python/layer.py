"""Times one layer of a transformer, tensor parallel, in CUDA graphs: by symmem's operators, and by NCCL with a compiled norm.

symmem run -n 2 -- python benches/python/layer.py --json out.json

The layers are those of examples/python/layer.py, bf16, random weights. "nothing" is the layer without communication and norm: what
is left of a contender's time is what these cost. Graphs are replayed in turn. Times are of the slowest rank, in microseconds.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import symmem
import symmem.torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
import layer

MODELS = {"8192": (8192, 28672), "4096": (4096, 14336)}


@torch.compile(dynamic=False)
def add_and_norm_(x: Tensor, residual: Tensor, weight: Tensor) -> None:
    total = x.float() + residual.float()
    residual.copy_(total)
    factor = torch.rsqrt(total.square().mean(-1, keepdim=True) + layer.EPSILON)
    x.copy_(total * factor * weight.float())


def halves(w: layer.Weights, x: Tensor, ends: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    x = ends(layer.attend(x @ w.query_key_value.t()) @ w.out.t(), w.norm)
    return ends(layer.activate(x @ w.gate_up.t()) @ w.down.t(), w.next_norm)


def by_nccl(w: layer.Weights, x: Tensor, residual: Tensor) -> Tensor:
    def ends(part: Tensor, norm: Tensor) -> Tensor:
        dist.all_reduce(part)
        add_and_norm_(part, residual, norm)
        return part

    return halves(w, x, ends)


def by_nccl_parts(w: layer.Weights, x: Tensor, residual: Tensor) -> Tensor:
    def gathered(part: Tensor) -> Tensor:
        whole = part.new_empty(part.shape[0] * dist.get_world_size(), part.shape[1])
        dist.all_gather_into_tensor(whole, part)
        return whole

    def ends(whole: Tensor, norm: Tensor) -> Tensor:
        part = whole.new_empty(whole.shape[0] // dist.get_world_size(), whole.shape[1])
        dist.reduce_scatter_tensor(part, whole)
        add_and_norm_(part, residual, norm)
        return part

    x = ends(layer.attend(gathered(x) @ w.query_key_value.t()) @ w.out.t(), w.norm)
    return ends(layer.activate(gathered(x) @ w.gate_up.t()) @ w.down.t(), w.next_norm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file for the times")
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    torch._dynamo.config.recompile_limit = 1000
    communicator = symmem.init()
    rank, world = communicator.rank, communicator.world_size
    torch.cuda.set_device(communicator.device)
    torch.set_default_device(f"cuda:{communicator.device}")
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29535", rank=rank, world_size=world,
        device_id=torch.device("cuda", communicator.device),
    )  # fmt: skip
    group = symmem.torch.Group(communicator)
    results = []
    for model in asked.models:
        torch.manual_seed(7)
        weights = layer.random_weights(*MODELS[model]).part(rank, world)
        for rows in asked.rows:
            torch.manual_seed(8)
            x, residual = (torch.randn(rows, MODELS[model][0]).bfloat16() for _ in range(2))
            own = slice(rank * rows // world, (rank + 1) * rows // world)
            x_part, residual_part = x[own].contiguous(), residual[own].clone()
            sums = {name: residual.clone() for name in ("ours", "nccl")}
            parts = {name: residual_part.clone() for name in ("ours", "nccl")}
            contenders: dict[str, Callable[[], Tensor]] = {
                "nothing": lambda: halves(weights, x, lambda part, _: part),
                "symmem": lambda: layer.few_rows(group, weights, x, sums["ours"]),
                "NCCL": lambda: by_nccl(weights, x, sums["nccl"]),
            }
            if rows >= 64 and rows % world == 0:
                contenders["symmem, rows divided"] = lambda: layer.many_rows(group, weights, x_part, parts["ours"])
                contenders["NCCL, rows divided"] = lambda: by_nccl_parts(weights, x_part, parts["nccl"])
            outputs = {name: call() for name, call in contenders.items()}
            torch.cuda.synchronize()
            torch.testing.assert_close(outputs["symmem"].float(), outputs["NCCL"].float(), rtol=5e-2, atol=1e-1)
            if "NCCL, rows divided" in outputs:
                divided = outputs["symmem, rows divided"].float()
                torch.testing.assert_close(divided, outputs["NCCL"][own].float(), rtol=5e-2, atol=1e-1)
            graphs = {}
            for name, call in contenders.items():
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    call()
                torch.cuda.current_stream().wait_stream(side)
                torch.cuda.synchronize()
                dist.barrier()
                graphs[name] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graphs[name]):
                    for _ in range(4):
                        call()
            times: dict[str, list[float]] = {name: [] for name in graphs}
            for _ in range(asked.rounds):
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
                    times[name].append(begin.elapsed_time(end) * 1e3 / 8)
            slowest = torch.tensor(list(times.values()), device="cuda")
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times = dict(zip(times, slowest.tolist(), strict=True))
            if rank == 0:
                medians = {name: statistics.median(values) for name, values in times.items()}
                results.append({"hidden": MODELS[model][0], "ffn": MODELS[model][1], "rows": rows, "us": times})
                print(f"{model} x {rows}: " + ", ".join(f"{name} {us:.1f}" for name, us in medians.items()), flush=True)
            torch.cuda.synchronize()
            dist.barrier()
            del graphs, contenders, outputs
    if rank == 0 and asked.json:
        with open(asked.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": results}, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
