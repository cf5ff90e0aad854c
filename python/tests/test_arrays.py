"""Arrays of CuPy and JAX, over the backend that SYMMEM_BACKEND names, by default the host's. CuPy has GPUs' only."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import array_programs
import pytest

FILE = Path(__file__).with_name("array_programs.py")
BACKEND = os.environ.get("SYMMEM_BACKEND", "host")


@pytest.mark.parametrize("ranks", [1, 2, 3] if BACKEND == "host" else [2])
@pytest.mark.parametrize("name", array_programs.PROGRAMS)
def test_program(name: str, ranks: int) -> None:
    library = name.split("_")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    if library == "cupy" and BACKEND == "host":
        pytest.skip("CuPy has no arrays in the host's memory")
    command = [sys.executable, "-m", "symmem", "run", "-n", str(ranks), "--backend", BACKEND, "--"]
    # JAX would take three quarters of the memory.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        [*command, sys.executable, str(FILE), name], timeout=300, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
