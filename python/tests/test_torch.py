"""Programs of several ranks that use PyTorch, over the backend that SYMMEM_BACKEND names, by default the host's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

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
