"""The plug-ins in vLLM and SGLang themselves, without a GPU. Skips the engine that is not installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("engine_programs.py")
NAMES = [
    f"{engine}_{what}"
    for engine in ("vllm", "sglang")
    for what in ("uses_symmem", "without_the_plug_in_is_unchanged", "raises_that_a_rank_died")
]


@pytest.mark.parametrize("name", NAMES)
def test_engine(name: str, tmp_path: Path) -> None:
    engine = name.split("_")[0]
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    environment = {**os.environ, "SYMMEM_BACKEND": "host"}
    for variable in ("VLLM_PLUGINS", "SGLANG_PLUGINS"):
        environment.pop(variable, None)
        if "without" not in name:
            environment[variable] = "symmem"
    commands = [[sys.executable, str(FILE), name, str(rank), "2", str(tmp_path / "store")] for rank in range(2)]
    running = [subprocess.Popen(one, env=environment, stderr=subprocess.PIPE, text=True) for one in commands]
    said = [one.communicate(timeout=300)[1][-4000:] for one in running]
    assert [one.returncode for one in running] == [0, 0], "\n".join(said)
