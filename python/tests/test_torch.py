"""Programs of several ranks that use PyTorch, over the backend that SYMMEM_BACKEND names, by default the host's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import distributed_programs
import torch_programs

FILE = Path(__file__).with_name("torch_programs.py")
BACKEND = os.environ.get("SYMMEM_BACKEND", "host")


@pytest.mark.parametrize("ranks", [1, 2, 3] if BACKEND == "host" else [2])
@pytest.mark.parametrize("name", torch_programs.PROGRAMS)
def test_program(name: str, ranks: int) -> None:
    command = [sys.executable, "-m", "symmem", "run", "-n", str(ranks), "--backend", BACKEND, "--"]
    done = subprocess.run(
        [*command, sys.executable, str(FILE), name], timeout=300, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3] if BACKEND == "host" else [2])
@pytest.mark.parametrize("name", distributed_programs.PROGRAMS)
def test_distributed(name: str, ranks: int, tmp_path: Path) -> None:
    program = str(FILE.with_name("distributed_programs.py"))
    store = str(tmp_path / "store")
    commands = [[sys.executable, program, name, str(rank), str(ranks), store] for rank in range(ranks)]
    environment = {**os.environ, "SYMMEM_BACKEND": BACKEND}
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]
    said = [one.communicate(timeout=300)[1] for one in running]
    assert [one.returncode for one in running] == [0] * ranks, said


@pytest.mark.parametrize("ranks", [1, 2, 3] if BACKEND == "host" else [2])
def test_layer_example(ranks: int) -> None:
    program = Path(__file__).parents[2] / "examples" / "python" / "layer.py"
    command = [sys.executable, "-m", "symmem", "run", "-n", str(ranks), "--backend", BACKEND, "--", sys.executable, str(program)]
    done = subprocess.run(command, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as on one rank") == 2 * ranks
