"""What a rank does with the packages vLLM and SGLang themselves, on the host: python engine_programs.py NAME RANK RANKS FILE.

There is no GPU, so what needs one has a stand-in: vLLM's platform is one that calls itself CUDA-like but has tensors of the
host, and NCCL's communicator is absent, so that the engines' own path is Gloo. The engines' groups, operators and plug-in
loaders are theirs.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import symmem

PROGRAMS: dict[str, Callable[[int, int, str], None]] = {}


def program(body: Callable[[int, int, str], None]) -> Callable[[int, int, str], None]:
    PROGRAMS[body.__name__] = body
    return body


def counted(owner: Any, name: str) -> list[int]:
    """Count the calls of a method, before a plug-in wraps it."""
    calls = [0]
    original = getattr(owner, name)

    def replacement(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return original(*args, **kwargs)

    setattr(owner, name, replacement)
    return calls


def vllm_group(rank: int, world: int, file: str) -> Any:
    """Return vLLM's tensor-parallel group of all ranks, after vLLM has loaded its plug-ins."""
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators import pynccl
    from vllm.platforms import current_platform
    from vllm.plugins import load_general_plugins

    class NoNccl:
        disabled = True
        world_size = world

        def __init__(self, **_: Any) -> None: ...

        def destroy(self) -> None: ...

    pynccl.PyNcclCommunicator = NoNccl
    platform = type(current_platform)
    communicator = "vllm.distributed.device_communicators.cuda_communicator.CudaCommunicator"
    platform.get_device_communicator_cls = classmethod(lambda cls: communicator)
    platform.use_custom_op_collectives = classmethod(lambda cls: True)
    parallel_state.set_custom_all_reduce(False)
    load_general_plugins()
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cpu"))):
        parallel_state.init_distributed_environment(world, rank, f"file://{file}", rank, "gloo")
        parallel_state.initialize_model_parallel(world)
    return parallel_state.get_tp_group()


@program
def vllm_uses_symmem(rank: int, world: int, file: str) -> None:
    from vllm.distributed import communication_op as op
    from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator

    own = {name: counted(CudaCommunicator, name) for name in ("all_reduce", "all_gather")}
    group = vllm_group(rank, world, file)
    assert group.device_communicator._symmem is not None
    total = world * (world + 1) // 2
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = torch.full((6, 8), rank + 1, dtype=dtype)
        assert (op.tensor_model_parallel_all_reduce(x) == total).all() and (x == rank + 1).all()
    for dim in (0, 1, 2, -1):
        x = torch.full((2, 3, 4), float(rank))
        rows = [torch.full((2, 3, 4), float(one)) for one in range(world)]
        assert torch.equal(op.tensor_model_parallel_all_gather(x, dim), torch.cat(rows, dim))
        x = torch.arange(8.0 * world**3).reshape(2 * world, 2 * world, 2 * world)
        part = op.tensor_model_parallel_reduce_scatter(x, dim)
        assert torch.equal(part, world * x.chunk(world, dim)[rank]) and part.is_contiguous()
    assert own["all_reduce"] == [0] and own["all_gather"] == [0]

    def layer(x: torch.Tensor) -> torch.Tensor:
        return op.tensor_model_parallel_all_reduce(x * 2).sin()

    x = torch.rand(4, 16)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))
    assert own["all_reduce"] == [0]
    for y in (torch.ones(4, dtype=torch.int64), torch.ones(4, 6).t(), torch.ones(9 << 20)):
        assert (op.tensor_model_parallel_all_reduce(y) == world).all()
    assert own["all_reduce"] == [3]
    group.destroy()


@program
def vllm_without_the_plug_in_is_unchanged(rank: int, world: int, file: str) -> None:
    from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator

    before = CudaCommunicator.all_reduce
    group = vllm_group(rank, world, file)
    assert CudaCommunicator.all_reduce is before and not hasattr(group.device_communicator, "_symmem")
    assert (group.all_reduce(torch.ones(8)) == world).all()


@program
def vllm_raises_that_a_rank_died(rank: int, world: int, file: str) -> None:
    group = vllm_group(rank, world, file)
    raises_that_a_rank_died(rank, group.all_reduce)


def sglang_group(rank: int, world: int, file: str) -> Any:
    """Return a tensor-parallel group of SGLang's of all ranks, after SGLang has loaded its plug-ins."""
    from sglang.srt.distributed import parallel_state
    from sglang.srt.plugins import load_plugins

    load_plugins()
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    return parallel_state.GroupCoordinator(
        [list(range(world))], rank, "gloo", False, False, False, False, False, False, group_name="tp"
    )


@program
def sglang_uses_symmem(rank: int, world: int, file: str) -> None:
    from sglang.srt.distributed.parallel_state import GroupCoordinator

    names = ("_all_reduce_out_place", "_all_reduce_in_place", "_all_gather_into_tensor", "_reduce_scatter_tensor")
    own = {name: counted(GroupCoordinator, name) for name in names}
    group = sglang_group(rank, world, file)
    assert group._symmem is not None
    total = world * (world + 1) // 2
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = torch.full((6, 8), rank + 1, dtype=dtype)
        # all_reduce() sends tensors of the host elsewhere. On a GPU it asks for the method, and calls these by operators that
        # are registered for GPUs only.
        assert group._resolve_outplace_all_reduce_method(input_=x) == "symmem"
        for method in ("symmem", "auto"):
            assert (group._all_reduce_out_place(x, method) == total).all() and (x == rank + 1).all()
        group._all_reduce_in_place(x)
        assert (x == total).all()
    x = torch.full((2, 3), float(rank))
    rows = torch.cat([torch.full((2, 3), float(one)) for one in range(world)])
    out = torch.empty(2 * world, 3)
    group._all_gather_into_tensor(out, x)
    assert torch.equal(out, rows)
    # In place: this rank's rows of the result.
    out = torch.zeros(2 * world, 3)
    out[2 * rank : 2 * rank + 2] = rank
    group._all_gather_into_tensor(out, out[2 * rank : 2 * rank + 2])
    assert torch.equal(out, rows)
    part = torch.empty(2, 3)
    group._reduce_scatter_tensor(part, rows)
    assert (part == rank * world).all()
    assert all(calls == [0] for calls in own.values()), own
    y = torch.ones(4, dtype=torch.int64)
    assert group._resolve_outplace_all_reduce_method(input_=y) is None
    group._all_reduce_in_place(y)
    assert (y == world).all() and own["_all_reduce_in_place"] == [1]
    out = torch.empty(world, dtype=torch.bool)
    group._all_gather_into_tensor(out, torch.ones(1, dtype=torch.bool))
    assert out.all() and own["_all_gather_into_tensor"] == [1]
    group.destroy()


@program
def sglang_without_the_plug_in_is_unchanged(rank: int, world: int, file: str) -> None:
    from sglang.srt.distributed.parallel_state import GroupCoordinator

    before = GroupCoordinator.__init__
    group = sglang_group(rank, world, file)
    assert GroupCoordinator.__init__ is before and not hasattr(group, "_symmem")
    assert (group.all_reduce(torch.ones(8)) == world).all()


@program
def sglang_raises_that_a_rank_died(rank: int, world: int, file: str) -> None:
    group = sglang_group(rank, world, file)
    raises_that_a_rank_died(rank, lambda x: group._all_reduce_out_place(x, "symmem"))


def raises_that_a_rank_died(rank: int, reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
    reduce(torch.ones(8))
    if rank == 0:
        os._exit(0)
    began = time.monotonic()
    try:
        while True:
            reduce(torch.ones(8))
    except symmem.PeerDied as error:
        assert error.peer == 0
    assert time.monotonic() - began < 30
    os._exit(0)


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
