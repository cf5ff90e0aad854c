"""One layer of a transformer, tensor parallel, by symmem's operators, compared with the whole layer on one rank.

symmem run -n 2 -- python examples/python/layer.py

Each rank has some of the heads and some of the feed-forward's columns. Few rows, as in a decode step, are all on every rank: each
half of the layer ends in one kernel that adds up the ranks' parts, adds the residual and normalises. Many rows, as in a prompt, are
divided among the ranks between the halves: each half begins by an all-gather + GEMM and ends by a GEMM + reduce-scatter.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import symmem
import symmem.torch

EPSILON = 1e-5
HEAD = 64


@dataclass
class Weights:
    """A rank's part of a layer, or all of it."""

    query_key_value: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    norm: Tensor
    next_norm: Tensor

    def part(self, rank: int, world: int) -> "Weights":
        """Return what a rank has: its heads, and its columns of the feed-forward."""

        def rows(weight: Tensor, stacked: int) -> Tensor:
            of_each = weight.view(stacked, world, -1, weight.shape[1])
            return of_each[:, rank].reshape(-1, weight.shape[1])

        def columns(weight: Tensor) -> Tensor:
            return weight.chunk(world, 1)[rank].contiguous()

        return Weights(
            rows(self.query_key_value, 3), columns(self.out), rows(self.gate_up, 2), columns(self.down), self.norm, self.next_norm
        )


def random_weights(hidden: int, ffn: int) -> Weights:
    def weight(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns) / columns**0.5).bfloat16()

    norm, next_norm = torch.rand(hidden).bfloat16(), torch.rand(hidden).bfloat16()
    return Weights(
        weight(3 * hidden, hidden), weight(hidden, hidden), weight(2 * ffn, hidden), weight(hidden, ffn), norm, next_norm
    )


def attend(query_key_value: Tensor) -> Tensor:
    """Attention of each row to those before it."""
    rows = query_key_value.shape[0]
    query, key, value = query_key_value.view(rows, 3, -1, HEAD).permute(1, 2, 0, 3)
    out = F.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)
    return out[0].transpose(0, 1).reshape(rows, -1)


def activate(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, 1)
    return F.silu(gate) * up


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x.float(), weight.shape, weight.float(), EPSILON).to(x.dtype)


def few_rows(group: symmem.torch.Group, w: Weights, x: Tensor, residual: Tensor) -> Tensor:
    """Return the input of the next layer; ``x`` is this one's, and ``residual``, which changes, the sum so far. All on each rank."""
    x = attend(x @ w.query_key_value.t()) @ w.out.t()
    group.all_reduce_rms_norm_(x, residual, w.norm, EPSILON)
    x = activate(x @ w.gate_up.t()) @ w.down.t()
    group.all_reduce_rms_norm_(x, residual, w.next_norm, EPSILON)
    return x


def many_rows(group: symmem.torch.Group, w: Weights, x: Tensor, residual: Tensor) -> Tensor:
    """:func:`few_rows` with this rank's rows of ``x`` and ``residual``."""
    query_key_value = group.all_gather_matmul(x, w.query_key_value.t())
    residual += group.matmul_reduce_scatter(attend(query_key_value), w.out.t())
    gate_up = group.all_gather_matmul(rms_norm(residual, w.norm), w.gate_up.t())
    residual += group.matmul_reduce_scatter(activate(gate_up), w.down.t())
    return rms_norm(residual, w.next_norm)


def whole(w: Weights, x: Tensor, residual: Tensor) -> Tensor:
    """:func:`few_rows` without other ranks."""
    residual += attend(x @ w.query_key_value.t()) @ w.out.t()
    residual += activate(rms_norm(residual, w.norm) @ w.gate_up.t()) @ w.down.t()
    return rms_norm(residual, w.next_norm)


def main() -> None:
    communicator = symmem.init()
    rank, world = communicator.rank, communicator.world_size
    if communicator.backend != "host":
        torch.set_default_device(f"cuda:{communicator.device}")
        torch.cuda.set_device(communicator.device)
    group = symmem.torch.Group(communicator)
    torch.manual_seed(7)  # the same weights and rows on all ranks
    weights = random_weights(HEAD * 2 * world, HEAD * 4 * world)
    mine = weights.part(rank, world)
    for layer, rows in ((few_rows, 3), (many_rows, 32 * world)):
        x, residual = (torch.randn(rows, weights.norm.shape[0]).bfloat16() for _ in range(2))
        expected_residual = residual.clone()
        expected = whole(weights, x, expected_residual)
        own = slice(rows) if layer is few_rows else slice(rank * rows // world, (rank + 1) * rows // world)
        sums = residual[own].clone()
        result = layer(group, mine, x[own].contiguous(), sums)
        # Parts are rounded to bfloat16 before they are added up: three digits, and a norm's weight is at most 1.
        torch.testing.assert_close(sums.float(), expected_residual[own].float(), rtol=3e-2, atol=6e-2)
        torch.testing.assert_close(result.float(), expected[own].float(), rtol=3e-2, atol=6e-2)
        print(f"rank {rank} of {world}: {rows} rows by {layer.__name__}, as on one rank")
    communicator.host_barrier()


if __name__ == "__main__":
    main()
