"""A tensor-parallel decode step in vLLM's groups, whose all-reduces are symmem's if vLLM loads symmem's plug-in.

VLLM_PLUGINS=symmem torchrun --nproc-per-node 2 examples/python/vllm_decode.py

The step has two layers of two GEMMs each, by columns and then by rows, as a model's MLP has them. It runs eagerly, compiled
and in a CUDA graph, and each result is compared with the sum that torch.distributed makes.
"""

import os

import torch
import torch.distributed as dist
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import get_tp_group, tensor_model_parallel_all_reduce
from vllm.distributed.parallel_state import (
    cleanup_dist_env_and_memory,
    graph_capture,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.plugins import load_general_plugins

HIDDEN, FFN, LAYERS, ROWS = 4096, 14336, 2, 8


def weights(world: int, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return this rank's random weights of each layer."""

    def weight(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device=device).mul_(rows**-0.5).bfloat16()

    return [(weight(HIDDEN, FFN // world), weight(FFN // world, HIDDEN)) for _ in range(LAYERS)]


def step(x: torch.Tensor, layers: list[tuple[torch.Tensor, torch.Tensor]], reduce=tensor_model_parallel_all_reduce):
    """Return the hidden states after all layers."""
    for up, down in layers:
        x = x + reduce(torch.nn.functional.silu(x @ up) @ down)
    return x


def reference(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of all ranks' tensors by torch.distributed."""
    dist.all_reduce(tensor, group=get_tp_group().device_group)
    return tensor


def compare(what: str, x: torch.Tensor, layers: list[tuple[torch.Tensor, torch.Tensor]], found: torch.Tensor) -> None:
    """Print how far a result is from the reference's; fail if it is not close."""
    expected = step(x, layers, reference)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    if dist.get_rank() == 0:
        print(f"{what}: largest difference {(found - expected).abs().max().item():.3g}")


def main() -> None:
    load_general_plugins()
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    with set_current_vllm_config(VllmConfig()), torch.inference_mode():
        init_distributed_environment(world, rank, "env://", local, "nccl")
        initialize_model_parallel(world)
        torch.manual_seed(rank)
        layers = weights(world, device)
        x = torch.randn(ROWS, HIDDEN, device=device, generator=torch.Generator(device).manual_seed(7)).bfloat16()

        compare("eager", x, layers, step(x, layers))
        compare("compiled", x, layers, torch.compile(step, fullgraph=True)(x, layers))
        with graph_capture(device) as context:
            step(x, layers)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=context.stream):
                out = step(x, layers)
        for _ in range(3):
            out.zero_()
            graph.replay()
            compare("graph", x, layers, out)
    if rank == 0:
        served = getattr(get_tp_group().device_communicator, "_symmem", None) is not None
        print("all-reduces by", "symmem" if served else "vLLM")
    torch.cuda.synchronize()
    cleanup_dist_env_and_memory()


if __name__ == "__main__":
    main()
