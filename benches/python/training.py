"""Trains with DDP over NCCL and over symmem in turn: the losses of 20 steps, and the time of a step.

symmem run -n 2 -- python benches/python/training.py --json out.json
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist

import symmem
import symmem.distributed

STEPS = 20


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, device="cuda")
    return torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=29543)
    asked = parser.parse_args()
    launched = symmem.init()
    rank, world = launched.rank, launched.world_size
    torch.cuda.set_device(launched.device)
    launched.finalize()
    # Without `device_id`, by which PyTorch 2.11 asks each group for a backend of C++.
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{asked.port}", rank=rank, world_size=world
    )
    groups = {"nccl": dist.group.WORLD, "symmem": dist.new_group(backend="symmem")}
    torch.manual_seed(rank + 1)
    batches = torch.randn(STEPS, 8, 256, 1024, device="cuda")
    losses: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {name: [] for name in groups}
    for round in range(asked.rounds):
        for name, group in groups.items():
            parallel = torch.nn.parallel.DistributedDataParallel(model(), process_group=group)
            optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
            found, took = [], []
            for batch in batches:
                torch.cuda.synchronize()
                begin = time.perf_counter()
                with torch.autocast("cuda", torch.bfloat16):
                    loss = parallel(batch).float().square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                torch.cuda.synchronize()
                took.append((time.perf_counter() - begin) * 1e3)
                found.append(loss.detach())
            total = torch.stack(found)
            dist.all_reduce(total, dist.ReduceOp.AVG)
            losses[name] = total.tolist()
            times[name].append(statistics.median(took[5:]))
            del parallel, optimizer
    rows = []
    for name in groups:
        slowest = torch.tensor(times[name], device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        rows.append({"backend": name, "step_ms": statistics.median(slowest.tolist()), "losses": losses[name]})
    if rank == 0:
        worst = max(abs(one / other - 1) for one, other in zip(losses["nccl"], losses["symmem"], strict=True))
        for row in rows:
            print(f"{row['backend']}: {row['step_ms']:.2f} ms a step, last loss {row['losses'][-1]:.6f}", flush=True)
        print(f"losses differ by at most {worst:.2e}", flush=True)
        if asked.json:
            with open(asked.json, "w") as file:
                json.dump(
                    {
                        "what": "training", "date": time.strftime("%Y-%m-%d"), "ranks": world,
                        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
                        "largest_relative_difference": worst, "rows": rows,
                    },
                    file, indent=1,
                )  # fmt: skip
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
