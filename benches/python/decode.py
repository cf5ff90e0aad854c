"""Times a tensor-parallel decode step in a CUDA graph with several all-reduces in turn.

symmem run -n 2 -- python benches/python/decode.py --flashinfer target/baselines/libflashinfer_collectives.so --json out.json

A layer has the GEMMs of a transformer's, by columns and then by rows, with an all-reduce behind each pair: hidden -> heads ->
hidden, hidden -> FFN -> hidden, and residuals. Weights are random. Each contender's steps are captured in a graph of its own,
and graphs are replayed in turn, so that all see the same clocks. Times are of the slowest rank. "none" adds nothing up: what
it takes is the loop without collectives.
"""

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem
import symmem.torch

MODELS = {"large": (8192, 28672), "small": (4096, 14336)}
BATCHES = [1, 8, 32, 128]
LAYERS = 8
LARGEST = 4 << 20
SHARED_BYTES = 32 << 20
SHARED: dict[str, torch.Tensor] = {}


class Contender:
    """An all-reduce: where it wants the partial sums, and how it adds them up."""

    def partial(self, shape: tuple[int, int]) -> torch.Tensor:
        return shared("partial", shape)

    def reduce(self, partial: torch.Tensor) -> torch.Tensor:
        return partial

    def captured(self) -> None:
        pass


class Nccl(Contender):
    def reduce(self, partial: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(partial)
        return partial


class Symmem(Contender):
    def __init__(self, group: symmem.torch.Group) -> None:
        self.group = group

    def reduce(self, partial: torch.Tensor) -> torch.Tensor:
        return self.group.all_reduce_(partial)


class SymmemSymmetric(Contender):
    """symmem on a symmetric buffer."""

    def __init__(self, communicator: symmem.Communicator) -> None:
        self.communicator = communicator
        self.buffer = communicator.allocate(LARGEST // 2, "bfloat16")
        self.memory = torch.from_dlpack(self.buffer)

    def partial(self, shape: tuple[int, int]) -> torch.Tensor:
        self.part = self.buffer[: shape[0] * shape[1]]
        return self.memory[: shape[0] * shape[1]].view(shape)

    def reduce(self, partial: torch.Tensor) -> torch.Tensor:
        self.communicator.all_reduce(self.part)
        return partial


class TorchSymmetric(Contender):
    def __init__(self, one_shot: bool) -> None:
        self.one_shot = one_shot
        self.memory = symm_mem.empty(LARGEST // 2, dtype=torch.bfloat16, device="cuda")
        symm_mem.rendezvous(self.memory, dist.group.WORLD)
        self.group = dist.group.WORLD.group_name

    def partial(self, shape: tuple[int, int]) -> torch.Tensor:
        return self.memory[: shape[0] * shape[1]].view(shape)

    def reduce(self, partial: torch.Tensor) -> torch.Tensor:
        if self.one_shot:
            return torch.ops.symm_mem.one_shot_all_reduce(partial, "sum", self.group)
        return torch.ops.symm_mem.two_shot_all_reduce_(partial, "sum", self.group)


class Address:
    """Memory at an address, for `torch.as_tensor`."""

    def __init__(self, address: int, words: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (words,), "typestr": "<u2", "data": (address, False), "version": 3,
        }  # fmt: skip


class FlashInfer:
    """The kernels of the package flashinfer-python, in the library that build_flashinfer.sh makes."""

    def __init__(self, file: str, rank: int, world: int) -> None:
        self.library = ctypes.CDLL(file)
        for name in ["open", "registered"]:
            getattr(self.library, f"flashinfer_{name}").restype = ctypes.c_void_p
        for name in ["version", "failure"]:
            getattr(self.library, f"flashinfer_{name}").restype = ctypes.c_char_p
        ordinal = torch.cuda.current_device()
        self.rank = self.library.flashinfer_open(rank, world, ordinal, ctypes.c_size_t(LARGEST))
        self.check(self.rank)
        self.rank = ctypes.c_void_p(self.rank)
        handle = ctypes.create_string_buffer(129)
        self.check(self.library.flashinfer_handle(self.rank, handle))
        handles: list[str] = [""] * world
        dist.all_gather_object(handles, handle.value.decode())
        self.check(self.library.flashinfer_connect(self.rank, " ".join(["shared", *handles]).encode()))
        words = Address(self.library.flashinfer_registered(self.rank), LARGEST // 2)
        self.registered = torch.as_tensor(words, device="cuda").view(torch.bfloat16)

    def check(self, did: object) -> None:
        if not did:
            raise RuntimeError(self.library.flashinfer_failure().decode())


class FlashInferKernel(Contender):
    def __init__(self, package: FlashInfer, kernel: str) -> None:
        self.package, self.kernel = package, kernel
        self.calls = 0

    def partial(self, shape: tuple[int, int]) -> torch.Tensor:
        if self.kernel != "vllm":
            return super().partial(shape)
        return self.package.registered[: shape[0] * shape[1]].view(shape)

    def reduce(self, partial: torch.Tensor) -> torch.Tensor:
        out = shared("out", (partial.shape[0], partial.shape[1]))
        self.package.check(
            self.package.library.flashinfer_all_reduce(
                self.package.rank,
                self.kernel.encode(),
                ctypes.c_void_p(partial.data_ptr()),
                ctypes.c_void_p(out.data_ptr()),
                ctypes.c_size_t(partial.numel() * 2),
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            )
        )
        self.calls += torch.cuda.is_current_stream_capturing()
        return out

    def captured(self) -> None:
        if self.kernel == "vllm":
            self.package.check(
                self.package.library.flashinfer_register_captured(self.package.rank, ctypes.c_long(self.calls))
            )
        self.calls = 0


class Model:
    def __init__(self, hidden: int, ffn: int, world: int, rank: int) -> None:
        torch.manual_seed(rank)
        self.hidden = hidden

        def weight(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, device="cuda").mul_(rows**-0.5).bfloat16()

        self.layers = [
            (
                weight(hidden, hidden // world),
                weight(hidden // world, hidden),
                weight(hidden, 2 * ffn // world),
                weight(ffn // world, hidden),
            )
            for _ in range(LAYERS)
        ]

    def step(self, x: torch.Tensor, by: Contender) -> torch.Tensor:
        # All contenders' GEMMs read the same memory: where it is changes their times by some percent.
        batch, hidden = x.shape
        partial = by.partial((batch, hidden))
        residual = self.part("residual", batch, hidden)
        torch.mul(x, 1, out=residual)
        for heads, back, up, down in self.layers:
            torch.mm(residual, heads, out=self.part("heads", batch, heads.shape[1]))
            torch.mm(self.part("heads", batch, heads.shape[1]), back, out=partial)
            residual.add_(by.reduce(partial), alpha=0.5)
            both = self.part("up", batch, up.shape[1])
            gate, value = torch.mm(residual, up, out=both).chunk(2, dim=1)
            inner = self.part("inner", batch, down.shape[0])
            torch.ops.aten.silu.out(gate, out=inner)
            torch.mm(inner.mul_(value), down, out=partial)
            residual.add_(by.reduce(partial), alpha=0.5)
        return residual

    def part(self, name: str, batch: int, columns: int) -> torch.Tensor:
        return shared(name, (batch, columns))


def shared(name: str, shape: tuple[int, int]) -> torch.Tensor:
    """Return memory for a matrix that all contenders use."""
    memory = SHARED.setdefault(name, torch.empty(SHARED_BYTES // 2, dtype=torch.bfloat16, device="cuda"))
    return memory[: shape[0] * shape[1]].view(shape)


def capture(work: Callable[[], torch.Tensor], by: Contender) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = work()
    by.captured()
    torch.cuda.synchronize()
    return graph, out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flashinfer")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replays", type=int, default=50)
    parser.add_argument("--port", type=int, default=29541)
    parser.add_argument("--batches", type=lambda text: [int(one) for one in text.split(",")], default=BATCHES)
    parser.add_argument("--contenders", type=lambda text: text.split(","), help="by default all; none and nccl always")
    asked = parser.parse_args()
    communicator = symmem.init()
    rank, world = communicator.rank, communicator.world_size
    torch.cuda.set_device(communicator.device)
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{asked.port}", rank=rank, world_size=world,
        device_id=torch.device("cuda", communicator.device),
    )  # fmt: skip
    contenders: dict[str, Contender] = {
        "none": Contender(),
        "symmem": Symmem(symmem.torch.Group(communicator)),
        "symmem symmetric": SymmemSymmetric(communicator),
        "nccl": Nccl(),
        "torch one-shot": TorchSymmetric(True),
        "torch two-shot": TorchSymmetric(False),
    }
    versions = {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version())), "symmem": symmem.__version__}
    if asked.flashinfer:
        package = FlashInfer(asked.flashinfer, rank, world)
        versions["flashinfer-python"] = package.library.flashinfer_version().decode()
        for kernel in ["one-shot", "one-shot-late", "one-shot-plain", "two-shot", "vllm"]:
            contenders[f"flashinfer {kernel}"] = FlashInferKernel(package, kernel)
    if asked.contenders:
        contenders = {name: by for name, by in contenders.items() if name in ["none", "nccl", *asked.contenders]}
    rows = []
    for name, (hidden, ffn) in MODELS.items():
        model = Model(hidden, ffn, world, rank)
        for batch in asked.batches:
            generator = torch.Generator("cuda").manual_seed(7)
            x = torch.randn(batch, hidden, device="cuda", generator=generator).bfloat16()
            graphs = {}
            for label, by in contenders.items():
                try:
                    graphs[label] = capture(lambda by=by: model.step(x, by), by)
                except RuntimeError as error:
                    print(f"{name} {batch} {label}: {error}") if rank == 0 else None
            outputs = {}
            for label, (graph, out) in graphs.items():
                out.fill_(torch.nan)
                graph.replay()
                torch.cuda.synchronize()
                outputs[label] = out.float()
            reference = outputs["nccl"]
            times: dict[str, list[float]] = {label: [] for label in graphs}
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(asked.rounds):
                for label, (graph, _) in graphs.items():
                    graph.replay()
                    dist.barrier()
                    begin.record()
                    for _ in range(asked.replays):
                        graph.replay()
                    end.record()
                    end.synchronize()
                    times[label].append(begin.elapsed_time(end) * 1e3 / asked.replays)
            for label in graphs:
                slowest = torch.tensor(times[label], device="cuda")
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                found = sorted(slowest.tolist())
                error = (outputs[label] - reference).abs().max() / reference.abs().max()
                rows.append(
                    {
                        "model": name, "hidden": hidden, "ffn": ffn, "layers": LAYERS, "batch": batch, "contender": label,
                        "step_us": statistics.median(found), "min_us": found[0], "max_us": found[-1],
                        "largest_relative_difference_from_nccl": error.item(),
                    }
                )  # fmt: skip
            if rank == 0:
                of = {row["contender"]: row["step_us"] for row in rows if (row["model"], row["batch"]) == (name, batch)}
                shown = ", ".join(f"{label} {us:.1f} (+{us - of['none']:.1f})" for label, us in of.items())
                print(f"{name} batch {batch}: {shown}", flush=True)
            del graphs
        del model
    if rank == 0 and asked.json:
        with open(asked.json, "w") as file:
            json.dump(
                {
                    "what": "decode", "date": time.strftime("%Y-%m-%d"), "ranks": world,
                    "device": torch.cuda.get_device_name(), "versions": versions, "rounds": asked.rounds,
                    "replays": asked.replays, "rows": rows,
                },
                file, indent=1,
            )  # fmt: skip
    dist.barrier()
    torch.cuda.synchronize()
    communicator.leave()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
