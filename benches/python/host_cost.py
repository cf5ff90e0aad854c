"""Times the host's part of a call: how long a call keeps the processor, in microseconds.

symmem run -n 2 -- python benches/python/host_cost.py --json out.json

Calls are enqueued in groups that fit into the driver's queue, so that none waits for the device. Medians over groups; the
slower rank. In turn, so that all see the same clocks.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem
import symmem.torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--port", type=int, default=29542)
    asked = parser.parse_args()
    communicator = symmem.init()
    rank, world = communicator.rank, communicator.world_size
    torch.cuda.set_device(communicator.device)
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{asked.port}", rank=rank, world_size=world,
        device_id=torch.device("cuda", communicator.device),
    )  # fmt: skip
    group = symmem.torch.Group(communicator)
    x = torch.ones(8192, dtype=torch.bfloat16, device="cuda")
    number = communicator.number
    operator = torch.ops.symmem.all_reduce_.default
    at = symmem.At(x.data_ptr(), x.numel(), x.dtype)
    stream = torch.cuda.current_stream()
    raw = stream.cuda_stream
    symmetric = symm_mem.empty(8192, dtype=torch.bfloat16, device="cuda")
    symm_mem.rendezvous(symmetric, dist.group.WORLD)
    name = dist.group.WORLD.group_name
    buffer = communicator.allocate(8192, "bfloat16")
    calls: dict[str, Callable[[], object]] = {
        "torch.ops.symmem.all_reduce_": lambda: operator(x, 0, number),
        "Group.all_reduce_": lambda: group.all_reduce_(x),
        "Group.all_reduce": lambda: group.all_reduce(x),
        "Communicator.all_reduce(tensor)": lambda: communicator.all_reduce(x),
        "Communicator.all_reduce(tensor, stream)": lambda: communicator.all_reduce(x, stream=stream),
        "Communicator.all_reduce(At, number)": lambda: communicator.all_reduce(at, stream=raw),
        "Communicator.all_reduce(Buffer, number)": lambda: communicator.all_reduce(buffer, stream=raw),
        "dist.all_reduce": lambda: dist.all_reduce(x),
        "one_shot_all_reduce": lambda: torch.ops.symm_mem.one_shot_all_reduce(symmetric, "sum", name),
        "x.add_(1)": lambda: x.add_(1),
        "a call of nothing": lambda: None,
    }
    times: dict[str, list[float]] = {label: [] for label in calls}
    for turn in range(25):
        for label, call in calls.items():
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                call()
            took = time.perf_counter() - begin
            if turn >= 5:
                times[label].append(took * 1e6 / 200)
    torch.cuda.synchronize()
    rows = []
    for label, found in times.items():
        slowest = torch.tensor(statistics.median(found), device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        rows.append({"call": label, "host_us": slowest.item()})
        if rank == 0:
            print(f"{label:45} {slowest.item():6.2f} us", flush=True)
    if rank == 0 and asked.json:
        with open(asked.json, "w") as file:
            json.dump(
                {
                    "what": "host cost", "date": time.strftime("%Y-%m-%d"), "ranks": world,
                    "device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows,
                },
                file, indent=1,
            )  # fmt: skip
    communicator.leave()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
