"""What a rank does with symmem as a backend of torch.distributed: python distributed_programs.py NAME RANK RANKS FILE."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard

import symmem.distributed

PROGRAMS: dict[str, Callable[[], None]] = {}
ON_GPU = torch.cuda.is_available() and os.environ.get("SYMMEM_BACKEND") != "host"


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
    communicator = symmem.from_group(backend=None if ON_GPU else "host")
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


@contextmanager
def refused(error: type[Exception], *words: str) -> Iterator[None]:
    """Expect an error whose message has these words."""
    try:
        yield
    except error as found:
        assert all(word in str(found) for word in words), str(found)
    else:
        raise AssertionError(f"no {error.__name__} with {words}")


@program
def functional_collectives_and_dtensors_find_the_group_by_its_name() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    found = functional.all_reduce(torch.full((4,), rank + 1.0), "sum", dist.group.WORLD)
    assert (found == world * (world + 1) / 2).all()
    mesh = init_device_mesh("cuda" if ON_GPU else "cpu", (world,))
    whole = torch.arange(4.0 * world).reshape(world, 4)
    sharded = DTensor.from_local(whole[rank : rank + 1], mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(placements=[Replicate()]).to_local(), whole)
    by_columns = DTensor.from_local(whole.clone(), mesh, [Replicate()]).redistribute(placements=[Shard(1)])
    assert torch.equal(by_columns.full_tensor(), whole)
    gathered = functional.all_gather_into_tensor_coalesced([found[:1], found], dist.group.WORLD)
    assert [len(one) for one in gathered] == [world, 4 * world]
    scattered = functional.reduce_scatter_tensor_coalesced([whole], "sum", [0], dist.group.WORLD)
    assert torch.equal(scattered[0], whole[rank : rank + 1] * world)
    assert dist.distributed_c10d._get_default_group().group_desc == "default_pg"


@program
def fsdp_gives_the_gradients_of_one_process() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    alone, sharded = torch.nn.Linear(16, 8), torch.nn.Linear(16, 8)
    sharded.load_state_dict(alone.state_dict())
    fully_shard(sharded, mesh=init_device_mesh("cuda" if ON_GPU else "cpu", (world,)))
    batch = torch.randn(4 * world, 16)
    alone(batch).square().mean().backward()
    sharded(batch[4 * rank : 4 * rank + 4]).square().mean().backward()
    for expected, found in zip(alone.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(cast(DTensor, found.grad).full_tensor(), expected.grad)


@program
def a_group_can_be_made_again_in_the_same_store() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    # As torchrun's store does, this one outlives the groups.
    path = sys.argv[4] + " of both groups"
    store = dist.FileStore(path, world)
    dist.destroy_process_group()
    for _ in range(3):
        # Rank 0 names the communicator, and comes last: the others must not take the last group's name.
        time.sleep(0.5 if rank == 0 else 0)
        dist.init_process_group("symmem", store=store, rank=rank, world_size=world)
        x = torch.ones(4)
        dist.all_reduce(x)
        assert (x == world).all()
        dist.barrier()
        dist.destroy_process_group()
    dist.init_process_group("symmem", store=store, rank=rank, world_size=world)


@program
def sends_of_cpu_tensors_need_no_wait_to_start() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return
    cpu = torch.device("cpu")
    seen = torch.zeros(4, device=cpu)
    if rank == 0:
        received = dist.irecv(seen, src=1)
        assert received is not None and not received.is_completed()
        # The peer sends only after this, so the question above did not wait for it.
        dist.barrier()
        received.wait()
        assert (seen == 1).all()
        sent = dist.isend(torch.full((4,), 2.0, device=cpu), dst=1)
        dist.barrier()
        assert sent is not None
        sent.wait()
    elif rank == 1:
        dist.barrier()
        dist.send(torch.ones(4, device=cpu), dst=0)
        dist.recv(seen, src=0)  # the peer is in the barrier, or before it
        assert (seen == 2).all()
        dist.barrier()
    else:
        dist.barrier()
        dist.barrier()


@program
def receives_that_come_before_sends_do_not_deadlock() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return
    to, source = (rank + 1) % world, (rank - 1) % world
    seen, mine = torch.zeros(1000, device="cpu"), torch.full((1000,), float(rank), device="cpu")
    received = dist.irecv(seen, source)
    dist.barrier()
    sent = dist.isend(mine, to)
    assert received is not None and sent is not None
    received.wait()
    sent.wait()
    assert (seen == source).all()


@program
def the_device_sends_and_receives_together_in_any_order() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        return
    group = cast(symmem.distributed.ProcessGroup, dist.group.WORLD)
    call = group._call("test")
    to, source = (rank + 1) % world, (rank - 1) % world
    for sends_first in [True, False, rank == 0]:
        for waits_for_send_first in [True, False, rank == 0]:
            # `isend` and `irecv` make messages of GPU tensors only; over the host backend the test makes them itself.
            seen = torch.zeros(1000)
            messages = [group._message(call, True, to, torch.full((1000,), float(rank)))]
            messages.insert(sends_first, group._message(call, False, source, seen))
            for message in sorted(messages, key=lambda message: message.sends == waits_for_send_first, reverse=True):
                message.wait()
                assert ON_GPU or message.is_completed()
            assert (seen == source).all()
    # One of two ranks may make one call for both messages, the other two.
    if rank < 2:
        peer = 1 - rank
        seen = torch.zeros(1000)
        sent = group._message(call, True, peer, torch.full((1000,), float(rank)))
        if rank == 0:
            sent.wait()
        received = group._message(call, False, peer, seen)
        received.wait()
        sent.wait()
        assert (seen == peer).all()
    # All messages of a call that failed say so, and later ones go.
    alone = [group._message(call, True, rank, torch.ones(3)) for _ in range(2)]
    for message in alone:
        with refused(symmem.InvalidArgument, "no matching receive"):
            message.wait()
    with refused(symmem.InvalidArgument, "no rank 9"):
        group._message(call, True, 9, torch.ones(1))


@program
def a_receive_from_any_source_takes_a_cpu_tensor() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if ON_GPU:
        with refused(symmem.Unsupported, "any source"):
            dist.recv(torch.zeros(3))
        with refused(symmem.Unsupported, "tag 5"):
            dist.isend(torch.zeros(3), 0, tag=5)
    if rank == 0:
        seen = torch.zeros(3, device="cpu")
        sources = set()
        for _ in range(world - 1):
            source = dist.recv(seen)
            assert (seen == source).all()
            sources.add(source)
        assert sources == set(range(1, world))
    else:
        dist.send(torch.full((3,), float(rank), device="cpu"), dst=0)


@program
def one_list_of_split_sizes_is_enough() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = [peer + 1 for peer in range(world)]
    equal, unequal = (rank + 1) * world, sum(sizes)
    # Each rank sends rank + 1 rows to every rank, which receives peer + 1 rows from each peer.
    output = torch.empty(unequal, 3)
    dist.all_to_all_single(output, torch.full((equal, 3), float(rank)), output_split_sizes=sizes)
    assert (output == torch.arange(world).repeat_interleave(torch.tensor(sizes)).unsqueeze(1)).all()
    # And the other way round.
    output = torch.empty(equal, 3)
    dist.all_to_all_single(output, torch.full((unequal, 3), float(rank)), input_split_sizes=sizes)
    assert (output == torch.arange(world).repeat_interleave(rank + 1).unsqueeze(1)).all()
    with refused(ValueError, "all_to_all_single", "add up"):
        dist.all_to_all_single(torch.empty(world + 1), torch.empty(world), [1] * world)
    if world > 1:
        with refused(ValueError, "pass split sizes"):
            dist.all_to_all_single(torch.empty(world), torch.empty(world + 1), [1] * world)


@program
def booleans_are_reduced_as_any_and_all() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    first = torch.tensor([rank == 0, True, False])
    for op, expected in [(dist.ReduceOp.SUM, [True, True, False]), (dist.ReduceOp.MIN, [world == 1, True, False])]:
        x = first.clone()
        dist.reduce(x, dst=0, op=op)
        assert rank != 0 or x.tolist() == expected
        output = torch.empty(3, dtype=torch.bool)
        dist.reduce_scatter_tensor(output, first.repeat(world), op=op)
        assert output.tolist() == expected
        dist.reduce_scatter(output.zero_(), [first] * world, op=op)
        assert output.tolist() == expected
    with refused(symmem.Unsupported, "all_reduce", "AVG", "booleans", "use SUM"):
        dist.all_reduce(first, dist.ReduceOp.AVG)


@program
def an_operator_that_is_missing_is_named() -> None:
    x = torch.ones(4, dtype=torch.int32)
    for name in ["BAND", "BOR", "BXOR"]:
        with refused(symmem.Unsupported, "all_reduce", f"no reduction {name};", "use SUM, AVG"):
            dist.all_reduce(x, getattr(dist.ReduceOp, name))
    with refused(symmem.Unsupported, "reduce_scatter_tensor", "no reduction PREMUL_SUM;"):
        op = dist._make_nccl_premul_sum(2.0)
        dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * dist.get_world_size()), op)


@program
def coalesced_calls_take_tensors_of_either_device() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for device in ["cpu", "cuda"] if ON_GPU else ["cpu"]:
        outputs = [torch.empty(2, device=device), torch.empty(3, device=device)]
        inputs = [torch.full((world * output.numel(),), rank + 1.0, device=device) for output in outputs]
        with dist.distributed_c10d._coalescing_manager():
            for output, input in zip(outputs, inputs, strict=True):
                dist.reduce_scatter_tensor(output, input)
        assert all((output == world * (world + 1) / 2).all() for output in outputs)
        gathered = [torch.empty(world, device=device) for _ in range(2)]
        with dist.distributed_c10d._coalescing_manager():
            for output in gathered:
                dist.all_gather_into_tensor(output, torch.full((1,), float(rank), device=device))
        assert all((output.cpu() == torch.arange(world, device="cpu")).all() for output in gathered)


def _bad_calls(world: int) -> list[tuple[str, Callable[[], Any]]]:
    group = dist.distributed_c10d._get_default_group()
    x, columns = torch.ones(4), torch.ones(4, 6).t()
    return [
        ("all_reduce", lambda: dist.all_reduce(columns)),
        ("all_reduce", lambda: group.allreduce_coalesced([x, torch.empty(4, dtype=torch.float8_e4m3fnuz)])),
        ("all_reduce", lambda: group.allreduce([x, x.to("meta")])),
        ("broadcast", lambda: dist.broadcast(columns, src=0)),
        ("broadcast", lambda: group.broadcast([x, columns], dist.BroadcastOptions())),
        ("reduce", lambda: dist.reduce(columns, dst=0)),
        ("all_gather", lambda: dist.all_gather([torch.empty(4)] * (world + 1), x)),
        ("all_gather", lambda: dist.all_gather([torch.empty(4)] * (world - 1) + [torch.empty(5)], x)),
        ("all_gather", lambda: dist.all_gather([torch.empty(4, 6).t()] * world, columns)),
        ("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(torch.empty(4 * world + 1), x)),
        (
            "all_gather_into_tensor",
            lambda: group.allgather_into_tensor_coalesced([torch.empty(4 * world), torch.empty(1)], [x, x]),
        ),
        ("reduce_scatter", lambda: dist.reduce_scatter(x, [torch.ones(4)] * (world + 1))),
        ("reduce_scatter", lambda: dist.reduce_scatter(x, [torch.ones(5)] * world)),
        ("reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(x, torch.ones(4 * world + 1))),
        (
            "reduce_scatter_tensor",
            lambda: group.reduce_scatter_tensor_coalesced([x, x], [torch.ones(4 * world), torch.ones(1)]),
        ),
        (
            "reduce_scatter_tensor",
            lambda: group.reduce_scatter_tensor_coalesced([x], [torch.ones(4 * world, device="meta")]),
        ),
        ("all_to_all_single", lambda: dist.all_to_all_single(torch.empty(2 * world), torch.empty(world))),
        ("all_to_all", lambda: dist.all_to_all([torch.empty(4)] * world, [torch.ones(1)] * world)),
        ("all_to_all", lambda: dist.all_to_all([torch.empty(4)] * (world + 1), [torch.ones(4)] * (world + 1))),
        ("gather", lambda: dist.gather(x, [torch.empty(5)] * world, dst=dist.get_rank())),
        ("scatter", lambda: dist.scatter(x, [torch.ones(5)] * world, src=dist.get_rank())),
    ]


@program
def a_bad_call_of_one_rank_communicates_nothing() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, bad in _bad_calls(world):
        if rank == world - 1:
            with refused(ValueError, f"{name} (rank {rank}):"):
                bad()
        # The other ranks are in this call already. A part of the bad call would meet it.
        x = torch.ones(4)
        dist.all_reduce(x)
        assert (x == world).all(), name


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
    if ON_GPU:
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
    dist.init_process_group("symmem", init_method=f"file://{file}", rank=rank, world_size=world)
    PROGRAMS[name]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
