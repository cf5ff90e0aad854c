"""PyTorch's collectives, measured on command: symmetric memory, NCCL and gloo.

One process per rank, with the arguments RANK WORLD DEVICE LARGEST. DEVICE is a CUDA ordinal or `cpu`, LARGEST
the maximum size of a call in bytes. Commands come on standard input, one per line, with one line of answer
each; the head of benches/src/collectives/external.rs describes the protocol. Sizes are those of nccl-tests.
Times are of this rank. Every check compares all elements with sums that are exact in every type.
"""

import sys


def say(*words):
    print(*words, flush=True)


try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    say("absent", "PyTorch cannot be imported:", str(error).replace("\n", " "))
    sys.exit(0)

import time
from datetime import timedelta

RANK, WORLD, DEVICE, LARGEST = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
ON_HOST = DEVICE == "cpu"
ROOT = 0
GUARD = 4096  # bytes after every output that must not change
CHUNK = 1 << 24  # elements generated at once

# Types by nccl-tests' names, and the number up to which the type represents every whole number exactly.
TYPES = {
    "int8": (torch.int8, 127),
    "uint8": (torch.uint8, 254),
    "int32": (torch.int32, 1 << 24),
    "int64": (torch.int64, 1 << 24),
    "half": (torch.float16, 1 << 11),
    "bfloat16": (torch.bfloat16, 1 << 8),
    "float": (torch.float32, 1 << 24),
    "double": (torch.float64, 1 << 24),
}


class Absent(Exception):
    """The request is not supported; the text gives the reason."""


def numbers(rank, first, count, most, device):
    """Returns whole numbers from 0 to `most`, a function of rank and place."""
    place = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return (((place + rank * 131071) * 1103515245 + 12345) >> 9) % (most + 1)


class Shape:
    """One operation at one size."""

    def __init__(self, operation, kind, size):
        self.operation = operation
        if kind not in TYPES:
            raise Absent(f"element type {kind} is not supported")
        self.dtype, exact = TYPES[kind]
        # Limited so that sums over all ranks are exact, in any order of adding.
        self.most = max(exact // WORLD, 1)
        width = torch.empty((), dtype=self.dtype).element_size()
        self.has_parts = operation in ("all_gather", "reduce_scatter", "all_to_all")
        elements = size // width
        step = max(16 // width, 1)
        self.part = elements // WORLD // step * step if self.has_parts else elements
        self.whole = self.part * WORLD if self.has_parts else elements

    def input(self):
        return self.part if self.operation == "all_gather" else self.whole

    def output(self):
        return self.part if self.operation == "reduce_scatter" else self.whole

    def source(self, out):
        for first in range(0, len(out), CHUNK):
            piece = out[first : first + CHUNK]
            piece.copy_(numbers(RANK, first, len(piece), self.most, out.device))

    def expected(self, first, count, device):
        """Returns expected elements of this rank's output."""

        def of(rank, at, length):
            return numbers(rank, at, length, self.most, device)

        if self.operation in ("all_reduce", "reduce"):
            return sum(of(rank, first, count) for rank in range(WORLD))
        if self.operation == "reduce_scatter":
            return sum(of(rank, RANK * self.part + first, count) for rank in range(WORLD))
        if self.operation == "broadcast":
            return of(ROOT, first, count)
        pieces = []
        while count:
            rank, within = divmod(first, self.part)
            length = min(count, self.part - within)
            base = RANK * self.part if self.operation == "all_to_all" else 0
            pieces.append(of(rank, base + within, length))
            first, count = first + length, count - length
        return torch.cat(pieces)


class Library:
    """A library's buffers and calls."""

    def __init__(self, empty):
        self.buffers = [empty(LARGEST + GUARD) for _ in range(2)]

    def view(self, which, dtype):
        return self.buffers[which].view(dtype)

    def ranges(self, shape, in_place):
        """Returns output and input of a call."""
        source, target = self.view(0, shape.dtype), self.view(1, shape.dtype)
        own = slice(RANK * shape.part, (RANK + 1) * shape.part)
        if not in_place:
            return target[: shape.output()], source[: shape.input()]
        if shape.operation == "all_gather":
            return target[: shape.whole], target[own]
        if shape.operation == "reduce_scatter":
            return target[own], target[: shape.whole]
        return target[: shape.whole], target[: shape.whole]


class Collectives(Library):
    """torch.distributed: NCCL on GPUs, gloo on the host. Its all-reduce works in place only."""

    def bind(self, shape, in_place):
        out, given = self.ranges(shape, in_place)
        calls = {
            ("all_reduce", True): lambda: dist.all_reduce(out),
            ("reduce", True): lambda: dist.reduce(out, ROOT),
            ("broadcast", True): lambda: dist.broadcast(out, ROOT),
            ("all_gather", False): lambda: dist.all_gather_into_tensor(out, given),
            ("all_gather", True): lambda: dist.all_gather_into_tensor(out, given),
            ("reduce_scatter", False): lambda: dist.reduce_scatter_tensor(out, given),
            ("reduce_scatter", True): lambda: dist.reduce_scatter_tensor(out, given),
            ("all_to_all", False): lambda: dist.all_to_all_single(out, given),
        }
        return calls.get((shape.operation, in_place))


class Symmetric(Library):
    """torch.ops.symm_mem: all-reduce of float and bfloat16, one-shot or two-shot."""

    def __init__(self, two_shot):
        import torch.distributed._symmetric_memory as symmetric_memory

        self.group = dist.group.WORLD.group_name
        self.two_shot = two_shot

        def empty(size):
            buffer = symmetric_memory.empty(size, dtype=torch.uint8, device=f"cuda:{DEVICE}")
            symmetric_memory.rendezvous(buffer, dist.group.WORLD)
            return buffer

        super().__init__(empty)

    def bind(self, shape, in_place):
        if shape.operation != "all_reduce" or shape.dtype not in (torch.float32, torch.bfloat16):
            return None
        ops, group = torch.ops.symm_mem, self.group
        out, given = self.ranges(shape, in_place)
        if self.two_shot and in_place:
            return lambda: ops.two_shot_all_reduce_(out, "sum", group)
        if self.two_shot and hasattr(ops, "two_shot_all_reduce_out"):
            return lambda: ops.two_shot_all_reduce_out(given, "sum", group, out)
        if not self.two_shot and not in_place:
            return lambda: ops.one_shot_all_reduce_out(given, "sum", group, out)
        return None


class Clock:
    """Times calls on the device, or on the host without one."""

    def __init__(self):
        if not ON_HOST:
            self.token = torch.zeros(1, device=f"cuda:{DEVICE}")
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.graph_of, self.graph = None, None

    def start_together(self):
        if ON_HOST:
            dist.barrier()
        else:
            dist.all_reduce(self.token)

    def timed(self, work):
        """Returns the time of `work` in nanoseconds."""
        self.start_together()
        if ON_HOST:
            start = time.perf_counter_ns()
            work()
            return time.perf_counter_ns() - start
        self.begin.record()
        work()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e6

    def looped(self, call, calls):
        def work():
            for _ in range(calls):
                call()

        call()
        return self.timed(work) / calls

    def replayed(self, key, call, calls, launches):
        if ON_HOST:
            raise Absent("the host has no graph capture")
        if self.graph_of != (key, calls):
            self.graph_of, self.graph = None, None
            call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                for _ in range(calls):
                    call()
            self.graph_of, self.graph = (key, calls), graph

        def work():
            for _ in range(launches):
                self.graph.replay()

        self.graph.replay()
        return self.timed(work) / calls / launches

    def single(self, call, samples):
        times = []
        for _ in range(samples):
            self.start_together()
            if not ON_HOST:
                torch.cuda.synchronize()
            start = time.perf_counter_ns()
            call()
            if not ON_HOST:
                torch.cuda.synchronize()
            times.append(time.perf_counter_ns() - start)
        return times


def check(library, shape, in_place, call):
    """Calls once into poisoned memory; returns the numbers of wrong and of checked elements."""
    library.buffers[1].fill_(255)
    out, given = library.ranges(shape, in_place)
    if not in_place or shape.operation != "broadcast" or RANK == ROOT:
        shape.source(given)
    if not ON_HOST:
        torch.cuda.synchronize()
    dist.barrier()
    call()
    if not ON_HOST:
        torch.cuda.synchronize()
    if shape.operation == "reduce" and RANK != ROOT:
        return 0, 0
    wrong = 0
    for first in range(0, len(out), CHUNK):
        piece = out[first : first + CHUNK]
        expected = shape.expected(first, len(piece), out.device).to(shape.dtype)
        wrong += int((piece != expected).sum())
    end = shape.whole if in_place else len(out)
    behind = library.view(1, shape.dtype)[end:].view(torch.uint8)[:GUARD]
    return wrong + int((behind != 255).sum()), len(out)


def start():
    if ON_HOST:
        backend = "gloo"
    else:
        if not torch.cuda.is_available() or not dist.is_nccl_available():
            raise Absent("this PyTorch has no CUDA or no NCCL")
        torch.cuda.set_device(int(DEVICE))
        backend = "nccl"
    wait = timedelta(seconds=60)
    if RANK == 0:
        store = dist.TCPStore("127.0.0.1", 0, WORLD, True, wait, wait_for_workers=False)
        say("port", store.port)
    else:
        word, port = sys.stdin.readline().split()
        store = dist.TCPStore("127.0.0.1", int(port), WORLD, False, wait)
    dist.init_process_group(backend, store=store, rank=RANK, world_size=WORLD, timeout=wait)
    dist.barrier()


def library(name, known={}):
    """Returns a library, which is created at its first use. The first use is collective."""
    if name not in known:
        if name in ("nccl-torch", "gloo"):
            device = "cpu" if ON_HOST else f"cuda:{DEVICE}"
            known[name] = Collectives(
                lambda size: torch.empty(size, dtype=torch.uint8, device=device)
            )
        else:
            known[name] = Symmetric(name == "torch two-shot")
    return known[name]


def obey(words, clock):
    """Returns the answer to one command."""
    command = words[0]
    name = words[1].replace("_", " ") if words[1].startswith("torch") else words[1]
    operation, kind, size, placement, *rest = words[2:]
    shape, in_place = Shape(operation, kind, int(size)), placement == "in"
    having = library(name)
    call = having.bind(shape, in_place)
    if call is None:
        raise Absent(f"{name} does not support {operation} of {kind} with placement `{placement}`")
    if command == "check":
        return "wrong", *check(having, shape, in_place, call)
    if command == "time":
        how, calls, launches = rest[0], int(rest[1]), int(rest[2])
        if how == "graph":
            key = " ".join(words[1:6])
            return "result", clock.replayed(key, call, calls, launches)
        return "result", clock.looped(call, calls)
    if command == "single":
        return "samples", *clock.single(call, int(rest[0]))
    raise Absent(f"unknown command {command}")


def main():
    try:
        start()
        clock = Clock()
        version = f"PyTorch {torch.__version__}"
        if not ON_HOST:
            version += ", NCCL " + ".".join(map(str, torch.cuda.nccl.version()))
        say("ready", version)
    except Exception as error:
        say("absent", str(error).replace("\n", " "))
        return
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        try:
            say(*obey(words, clock))
        except (Absent, NotImplementedError, RuntimeError) as error:
            say("absent", str(error).replace("\n", " ")[:300])
    # Destroying the group would wait for peers that may be gone.
    sys.stdout.flush()
    import os

    os._exit(0)


main()
