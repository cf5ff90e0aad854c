"""The package in one process."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import symmem


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_commands_are_symmem() -> None:
    script = Path(sysconfig.get_path("scripts")) / "symmem"
    said = {output(str(script), "--version"), output(sys.executable, "-m", "symmem", "--version")}
    assert said == {f"symmem {symmem.__version__}\n"}


def test_the_command_passes_its_exit_code_on() -> None:
    for words, code in [(["--no-such-option"], 2), (["run", "-n", "2", "--", "false"], 1)]:
        done = subprocess.run([sys.executable, "-m", "symmem", *words], capture_output=True, timeout=120)
        assert done.returncode == code, done.stderr


def test_the_command_starts_ranks_of_itself() -> None:
    words = ["selftest", "-n", "2", "--backend", "host", "--quick"]
    assert " 0 failed" in output(sys.executable, "-m", "symmem", *words)


def test_the_script_works_in_a_folder_with_the_packages_name(tmp_path: Path) -> None:
    (tmp_path / "symmem").mkdir()
    (tmp_path / "symmem" / "__init__.py").write_text("raise ImportError('not this one')")
    script = Path(sysconfig.get_path("scripts")) / "symmem"
    command = [str(script), "run", "-n", "2", "--", "true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_world_of_one_needs_no_launcher() -> None:
    communicator = symmem.init(backend="host")
    x = np.ones(4, "float32")
    communicator.all_reduce(x)
    assert (communicator.rank, communicator.world_size, communicator.backend) == (0, 1, "host")
    communicator.finalize()


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(symmem.InvalidArgument, match="world_size"):
        symmem.init(rank=0)
    with pytest.raises(symmem.Error):
        symmem.init(rank=2, world_size=2, job="no such rank")
    with pytest.raises(symmem.InvalidArgument, match="duration"):
        symmem.init(rank=0, world_size=1, backend="host", deadline=float("nan"))
    with pytest.raises(symmem.Error, match="nosuch"):
        symmem.init(rank=0, world_size=1, backend="nosuch")


def test_errors_are_exceptions_of_python_too() -> None:
    assert issubclass(symmem.Timeout, TimeoutError)
    assert issubclass(symmem.InvalidArgument, ValueError)
    assert issubclass(symmem.OutOfMemory, MemoryError)
    assert all(issubclass(getattr(symmem, name), symmem.Error) for name in ["PeerDied", "Mismatch", "NotShareable"])


def test_memory_does_not_grow() -> None:
    communicator = symmem.init(rank=0, world_size=1, backend="host")
    x = np.ones(64, "float32")

    def round_trips(count: int) -> None:
        for _ in range(count):
            buffer = communicator.allocate(1 << 12, "float32")
            array = np.from_dlpack(buffer)
            communicator.all_reduce(array, x if len(x) == len(array) else None)
            with pytest.raises(BufferError):
                buffer.free()
            del array
            buffer.free()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    round_trips(200)
    before = resident()
    round_trips(1000)
    assert resident() - before < 8 << 20
    communicator.finalize()
