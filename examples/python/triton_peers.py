"""A Triton kernel that sums what all ranks have, by loads from their memory.

torchrun --nproc-per-node 2 examples/python/triton_peers.py
"""

import torch
import triton
import triton.language as tl

import symmem


@triton.jit
def sum_of_peers(pointers, out, count, world: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for rank in range(world):
        # A table in device memory has the address of each rank's copy.
        theirs = tl.load(pointers.to(tl.pointer_type(tl.uint64)) + rank).to(tl.pointer_type(tl.float32))
        total += tl.load(theirs + at, mask=at < count, other=0.0)
    tl.store(out + at, total, mask=at < count)


COUNT = 100_000


def main() -> None:
    communicator = symmem.init()
    rank, world = communicator.rank, communicator.world_size
    torch.cuda.set_device(communicator.device)

    buffer = communicator.allocate(COUNT, "float32")
    mine = torch.from_dlpack(buffer)
    mine.copy_(torch.arange(COUNT, device="cuda") * (rank + 1))
    out = torch.empty(COUNT, device="cuda")

    communicator.barrier()  # all ranks have written, on the current stream of each
    sum_of_peers[(triton.cdiv(COUNT, 1024),)](buffer.buffer_ptrs_dev, out, COUNT, world, 1024)
    communicator.barrier()  # all ranks have read

    expected = torch.arange(COUNT, device="cuda") * (world * (world + 1) / 2)
    torch.testing.assert_close(out, expected)
    print(f"rank {rank} of {world}: right")

    del mine
    buffer.free()
    communicator.finalize()


# A function, since Triton keeps a copy of the module's globals, and with it the tensors there.
main()
