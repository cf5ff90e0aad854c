"""What a rank does with symmem as a backend of torch.distributed: python distributed_programs.py NAME RANK RANKS FILE."""

import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import symmem.distributed

PROGRAMS: dict[str, Callable[[], None]] = {}


def program(body: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[body.__name__] = body
    return body


@program
def every_collective_gives_what_all_ranks_have() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    total = world * (world + 1) // 2
    for dtype in [torch.float32, torch.bfloat16, torch.int64, torch.uint8]:
        x = torch.full((4, 3), rank + 1, dtype=dtype)
        dist.all_reduce(x)
        assert (x == total).all()
        work = dist.all_reduce(x.fill_(rank), dist.ReduceOp.MAX, async_op=True)
        work.wait()
        assert (x == world - 1).all()
        dist.broadcast(x.fill_(rank), src=world - 1)
        assert (x == world - 1).all()
        dist.reduce(x.fill_(rank + 1), dst=0)
        assert rank != 0 or (x == total).all()
        rows = [torch.empty(5, dtype=dtype) for _ in range(world)]
        dist.all_gather(rows, torch.full((5,), rank, dtype=dtype))
        assert all((row == peer).all() for peer, row in enumerate(rows))
        flat = torch.empty(world * 5, dtype=dtype)
        dist.all_gather_into_tensor(flat, torch.full((5,), rank, dtype=dtype))
        assert (flat == torch.arange(world).repeat_interleave(5)).all()
        mine = torch.empty(5, dtype=dtype)
        dist.reduce_scatter_tensor(mine, torch.arange(world).repeat_interleave(5).to(dtype))
        assert (mine == rank * world).all()
        dist.reduce_scatter(mine, [torch.full((5,), peer, dtype=dtype) for peer in range(world)])
        assert (mine == rank * world).all()
        out = torch.empty(world, dtype=dtype)
        dist.all_to_all_single(out, torch.full((world,), rank, dtype=dtype))
        assert (out == torch.arange(world)).all()
        # Rank r sends r + s elements to rank s.
        sizes = [rank + peer for peer in range(world)]
        uneven = torch.empty(sum(sizes), dtype=dtype)
        dist.all_to_all_single(uneven, torch.full((sum(sizes),), rank, dtype=dtype), sizes, sizes)
        assert (uneven == torch.repeat_interleave(torch.arange(world), torch.tensor(sizes))).all()
        rows = [torch.empty(3, dtype=dtype) for _ in range(world)]
        dist.gather(torch.full((3,), rank, dtype=dtype), rows if rank == 0 else None, dst=0)
        assert rank != 0 or all((row == peer).all() for peer, row in enumerate(rows))
        part = torch.empty(3, dtype=dtype)
        dist.scatter(part, [torch.full((3,), peer, dtype=dtype) for peer in range(world)] if rank == 0 else None, src=0)
        assert (part == rank).all()
        if world > 1:
            if rank == 0:
                dist.send(torch.full((7,), 9, dtype=dtype), dst=1)
            elif rank == 1:
                seven = torch.empty(7, dtype=dtype)
                dist.recv(seven, src=0)
                assert (seven == 9).all()
    some = torch.tensor([rank == 0, True, False])
    dist.all_reduce(some)
    assert some.tolist() == [True, True, False]
    scalar = torch.tensor(float(rank))
    dist.broadcast(scalar, src=0)
    assert scalar.item() == 0
    objects: list[object] = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": peer} for peer in range(world)]
    dist.barrier()


@program
def ranks_that_send_first_receive_all_the_same() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return
    to, source = (rank + 1) % world, (rank - 1) % world
    seen, large = torch.zeros(1000), torch.zeros(1 << 20)
    batch = [
        dist.P2POp(dist.isend, torch.full((1000,), float(rank)), to),
        dist.P2POp(dist.irecv, seen, source),
        dist.P2POp(dist.isend, torch.full((1 << 20,), float(rank)), to),
        dist.P2POp(dist.irecv, large, source),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert (seen == source).all() and (large == source).all()
    works = [dist.isend(torch.full((1000,), rank + 1.0), to), dist.irecv(seen, source)]
    dist.barrier()
    for work in works:
        assert work is not None
        work.wait()
    assert (seen == source + 1).all()


@program
def groups_of_some_ranks_work() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group([peer for peer in range(world) if peer % 2 == odd]) for odd in range(min(2, world))]
    x = torch.ones(4)
    dist.all_reduce(x, group=groups[rank % 2])
    assert (x == (world + 1 - rank % 2) // 2).all()


@program
def a_communicator_of_a_groups_ranks() -> None:
    on_gpu = torch.cuda.is_available() and os.environ.get("SYMMEM_BACKEND") != "host"
    communicator = symmem.from_group(backend=None if on_gpu else "host")
    assert (communicator.rank, communicator.world_size) == (dist.get_rank(), dist.get_world_size())
    x = torch.ones(8)
    communicator.all_reduce(x)
    assert (x == dist.get_world_size()).all()
    communicator.finalize()


@program
def a_training_with_ddp_gives_what_one_process_gives() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))

    torch.manual_seed(1)
    batches = torch.randn(20, 8 * world, 64)
    alone, parallel = model(), torch.nn.parallel.DistributedDataParallel(model())
    losses = []
    for one, mine in [(alone, slice(None)), (parallel, slice(8 * rank, 8 * rank + 8))]:
        optimizer = torch.optim.SGD(one.parameters(), lr=0.05)
        mean = torch.zeros(())
        for batch in batches:
            loss = one(batch[mine]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
        losses.append(mean)
    dist.all_reduce(losses[1], dist.ReduceOp.AVG)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    for expected, found in zip(alone.parameters(), parallel.parameters(), strict=True):
        torch.testing.assert_close(found.data, expected.data, rtol=1e-3, atol=1e-4)


@program
def a_death_is_an_exception() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return
    dist.barrier()
    if rank == world - 1:
        os._exit(0)
    began = time.monotonic()
    try:
        for _ in range(100):
            dist.all_reduce(torch.ones(64))
            if torch.cuda.is_available():
                torch.cuda.synchronize()
        raise AssertionError("no exception")
    except symmem.PeerDied as error:
        assert error.peer == world - 1
    assert time.monotonic() - began < 30
    os._exit(0)


def main(name: str, rank: int, world: int, file: str) -> None:
    if torch.cuda.is_available() and os.environ.get("SYMMEM_BACKEND") != "host":
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
    dist.init_process_group("symmem", init_method=f"file://{file}", rank=rank, world_size=world)
    PROGRAMS[name]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
