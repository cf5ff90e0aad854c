"""Programs of several ranks, over the host backend."""

import multiprocessing
import os
import subprocess
import sys
import uuid
from pathlib import Path

import programs
import pytest

FILE = Path(__file__).with_name("programs.py")
LIMIT = 300


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program(name: str, ranks: int) -> None:
    command = [sys.executable, "-m", "symmem", "run", "-n", str(ranks), "--backend", "host", "--"]
    done = subprocess.run(
        [*command, sys.executable, str(FILE), name], timeout=LIMIT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_are_processes_of_multiprocessing(ranks: int) -> None:
    # A fork of a process that has joined cannot use its communicator; this one has not, but 3.14 spawns by default, too.
    context = multiprocessing.get_context("spawn")
    job = uuid.uuid4().hex
    name = "collectives_take_arrays_of_every_type"
    processes = [
        context.Process(
            target=programs.main,
            args=(name,),
            kwargs={"rank": rank, "world_size": ranks, "job": job, "backend": "host"},
        )
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT)
    assert [process.exitcode for process in processes] == [0] * ranks


def test_ranks_are_found_in_the_variables_of_torchrun() -> None:
    run = uuid.uuid4().hex
    ranks = []
    for rank in range(2):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": run,
            "SYMMEM_BACKEND": "host",
        }
        command = [sys.executable, str(FILE), "puts_and_signals_go_around_a_ring"]
        ranks.append(subprocess.Popen(command, env={**os.environ, **variables}))
    assert [rank.wait(LIMIT) for rank in ranks] == [0, 0]
