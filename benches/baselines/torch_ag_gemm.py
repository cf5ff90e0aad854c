"""PyTorch's all-gather + GEMM, measured on command: `fused_all_gather_matmul`, all-gather then matmul, and
Transformer Engine's overlap.

One process per rank, with the arguments RANK WORLD DEVICE. DEVICE is a CUDA ordinal or `cpu` (gloo, `plain` only).
Commands come on standard input, one per line, with one line of answer each; the head of
benches/src/ag_gemm/torch.rs describes the protocol. Times are of this rank, in nanoseconds.
"""

import os
import sys

# Libraries print to standard output. Send that to standard error, and the answers to the original standard output.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(*words):
    print(*words, file=ANSWERS, flush=True)


try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    say("absent", "PyTorch cannot be imported:", str(error).replace("\n", " "))
    sys.exit(0)

import importlib.metadata
import importlib.util
import time
from datetime import timedelta

RANK, WORLD, DEVICE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ON_HOST = DEVICE == "cpu"
PLACE = "cpu" if ON_HOST else f"cuda:{DEVICE}"
ROWS = 64  # minimum number of rows of C that a check compares, if C has as many
HAS_ENGINE = importlib.util.find_spec("transformer_engine") is not None
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


class Absent(Exception):
    """The request is not supported; the text gives the reason."""


class Product:
    """This rank's matrices of one shape."""

    def __init__(self, m, n, k, dtype, sharding, order, bias):
        self.m, self.n, self.k = int(m), int(n), int(k)
        self.dtype = getattr(torch, dtype)
        self.by_columns = sharding == "columns"
        divided = self.k if self.by_columns else self.m
        if divided % WORLD:
            raise Absent(f"PyTorch needs equal shards, but {divided} is not a multiple of {WORLD}")
        generator = torch.Generator(PLACE)
        generator.manual_seed(1 + RANK)

        def random(*shape):
            matrix = torch.empty(shape, dtype=self.dtype, device=PLACE)
            return matrix.uniform_(-1, 1, generator=generator)

        rows = self.m if self.by_columns else self.m // WORLD
        columns = self.k // WORLD if self.by_columns else self.k
        self.a = random(rows, columns)
        self.b = random(self.n, self.k).t() if order == "column-major" else random(self.k, self.n)
        self.bias = random(self.n) if bias == "1" else None
        self.gathered = torch.empty((WORLD, rows, columns), dtype=self.dtype, device=PLACE)
        # All of A, assembled from shards of columns.
        whole = (self.m, self.k) if self.by_columns else (0,)
        self.whole = torch.empty(whole, dtype=self.dtype, device=PLACE)
        self.c = torch.empty((self.m, self.n), dtype=self.dtype, device=PLACE)
        self.layer = None

    def gather(self):
        """Gathers A; returns all of it, row-major."""
        blocks = self.gathered.view(WORLD * self.a.shape[0], self.a.shape[1])
        dist.all_gather_into_tensor(blocks, self.a)
        if not self.by_columns:
            return blocks
        self.whole.view(self.m, WORLD, -1).copy_(self.gathered.transpose(0, 1))
        return self.whole

    def plain(self):
        a = self.gather()
        if self.bias is None:
            return torch.matmul(a, self.b, out=self.c)
        return torch.addmm(self.bias, a, self.b, out=self.c)

    def fused(self):
        _, (c,) = torch.ops.symm_mem.fused_all_gather_matmul(
            self.a, [self.b], 0, dist.group.WORLD.group_name, return_A=False
        )
        return c if self.bias is None else c.add_(self.bias)

    def overlapped(self):
        """Calls Transformer Engine's column-parallel layer, which overlaps a ring all-gather with its GEMMs.

        Its weight is B transposed, whatever the order of B.
        """
        if self.layer is None:
            import transformer_engine.pytorch as engine

            base = engine.module.base
            base.initialize_ub([self.m, self.k], WORLD, dtype=self.dtype, bootstrap_backend="nccl")
            self.destroy = base.destroy_ub
            self.layer = engine.Linear(
                self.k,
                self.n * WORLD,
                bias=self.bias is not None,
                params_dtype=self.dtype,
                device=PLACE,
                tp_group=dist.group.WORLD,
                tp_size=WORLD,
                parallel_mode="column",
                sequence_parallel=True,
                ub_overlap_ag=True,
                ub_name="qkv",
            )
            with torch.no_grad():
                self.layer.weight.copy_(self.b.t())
                if self.bias is not None:
                    self.layer.bias.copy_(self.bias)
        with torch.no_grad():
            return self.layer(self.a)

    def close(self):
        """Frees resources that are not tensors. Collective."""
        if self.layer is not None:
            self.layer = None
            torch.cuda.synchronize()
            self.destroy()

    def way(self, name):
        if name == "plain":
            return self.plain
        if ON_HOST:
            raise Absent("symmetric memory needs GPUs")
        if self.by_columns:
            raise Absent("PyTorch's fused operations gather rows, not columns")
        if name == "fused":
            return self.fused
        if not HAS_ENGINE:
            raise Absent("Transformer Engine is not installed")
        if os.environ.get("UB_SKIPMC") != "1":
            raise Absent("Transformer Engine would use multicast; set UB_SKIPMC=1")
        return self.overlapped

    def sampled(self):
        """Returns the rows that a check compares: spread over all shards, with the first and the last."""
        step = max(self.m // ROWS, 1)
        rows = list(range(0, self.m, step)) + [self.m - 1]
        return torch.tensor(sorted(set(rows)), device=PLACE)

    def check(self, call):
        """Calls twice; returns the numbers of wrong and of compared elements of the second call."""
        self.c.fill_(float("nan"))
        call()
        # Another A, so that stale data of the first call is wrong.
        self.a.neg_().add_(0.25)
        c = call().clone()
        a = self.gather().clone()
        rows = self.sampled()
        a, b = a[rows].double(), self.b.double()
        expected, absolute = a @ b, a.abs() @ b.abs()
        if self.bias is not None:
            expected += self.bias.double()
            absolute += self.bias.double().abs()
        slack = ROUNDOFF[self.dtype] * expected.abs() + self.k**0.5 * 2.0**-22 * absolute
        right = (c[rows].double() - expected).abs() <= slack
        return int((~right).sum()), right.numel()


class Clock:
    """Times calls on the device, or on the host without one."""

    def __init__(self):
        if not ON_HOST:
            self.token = torch.zeros(1, device=PLACE)
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)

    def start_together(self):
        if ON_HOST:
            dist.barrier()
        else:
            dist.all_reduce(self.token)

    def each(self, call, times, together):
        """Returns nanoseconds per call; on a device, enqueues all calls before it waits."""
        if ON_HOST:
            found = []
            for _ in range(times):
                if together:
                    self.start_together()
                start = time.perf_counter_ns()
                call()
                found.append(time.perf_counter_ns() - start)
            return found
        pairs = []
        for _ in range(times):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if together:
                self.start_together()
            begin.record()
            call()
            end.record()
            pairs.append((begin, end))
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e6 for begin, end in pairs]

    def captured(self, call, calls):
        if ON_HOST:
            raise Absent("the host has no graph capture")
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for _ in range(calls):
                call()
        return graph


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
    if not ON_HOST:
        import torch.distributed._symmetric_memory as symmetric_memory

        # Only older versions need this.
        if hasattr(symmetric_memory, "enable_symm_mem_for_group"):
            symmetric_memory.enable_symm_mem_for_group(dist.group.WORLD.group_name)


class Service:
    """State of the commands: clock, matrices and graphs."""

    def __init__(self):
        self.clock = Clock()
        self.product = None
        self.graphs = {}

    def shape(self, *words):
        # Free the old matrices before allocating new ones.
        if self.product is not None:
            self.product.close()
        self.graphs, self.product = {}, None
        if not ON_HOST:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self.product = Product(*words)
        return ("shaped",)

    def obey(self, command, *words):
        """Returns the answer to one command."""
        if command == "shape":
            return self.shape(*words)
        if self.product is None:
            raise Absent("there are no matrices; send `shape` first")
        name, *rest = words
        call, clock = self.product.way(name), self.clock
        if command == "check":
            return "wrong", *self.product.check(call)
        if command == "time":
            call()
            return "times", *clock.each(call, int(rest[0]), True)
        if command == "replay":
            calls, launches = int(rest[0]), int(rest[1])
            if (name, calls) not in self.graphs:
                self.graphs[name, calls] = clock.captured(call, calls)
            graph = self.graphs[name, calls]
            graph.replay()

            def work():
                for _ in range(launches):
                    graph.replay()

            (taken,) = clock.each(work, 1, True)
            return "times", taken / calls / launches
        if command == "loop":
            for _ in range(int(rest[0])):
                call()
            found = clock.each(call, int(rest[1]), False)
            return "times", sum(found) / len(found)
        raise Absent(f"unknown command {command}")


def main():
    try:
        start()
        service = Service()
        version = f"PyTorch {torch.__version__}"
        if not ON_HOST:
            version += ", NCCL " + ".".join(map(str, torch.cuda.nccl.version()))
        if HAS_ENGINE:
            version += f", Transformer Engine {importlib.metadata.version('transformer_engine')}"
        say("ready", version)
    except Exception as error:
        say("absent", str(error).replace("\n", " "))
        return
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        try:
            say(*service.obey(*words))
        except (Absent, ImportError, AttributeError, TypeError, AssertionError, RuntimeError) as error:
            say("absent", str(error).replace("\n", " ")[:300])
    # Destroying the group would wait for peers that may be gone.
    sys.stdout.flush()
    os._exit(0)


main()
