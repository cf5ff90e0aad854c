"""Ranks that end while their streams have work, while a thread is in a call, or by Ctrl-C, over the host backend."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("endings.py")
RUN = [sys.executable, "-m", "symmem", "run", "-n", "2", "--backend", "host", "--", sys.executable]
LIMIT = 300


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *words], timeout=LIMIT, capture_output=True, text=True)


@pytest.mark.parametrize("how", ["leave", "abort", "drop", "exit"])
@pytest.mark.parametrize("what", ["nothing", "buffer", "view", "product", "cycle"])
def test_work_keeps_its_arrays(how: str, what: str) -> None:
    done = run(str(FILE), how, what)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_thread_in_a_call_does_not_outlive_the_interpreter() -> None:
    done = run(str(FILE), "exit", "call")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Aborted" in done.stderr or "PeerFailed" in done.stderr


BLOCKING = {
    "a_call": "symmem.init().recv(0, numpy.zeros(3))",
    "a_stream": "c = symmem.init(); s = c.stream(); c.wait_signal(0, stream=s); s.synchronize()",
    "a_host_barrier": "c = symmem.init(); c.host_barrier()",
    "an_allocation": "c = symmem.init(); c.allocate(8, 'int8')",
    "finalize": "c = symmem.init(); c.finalize()",
    "joining": "symmem.init(rank=1, world_size=2, job='nobody else of ' + os.environ['SYMMEM_JOB'])",
}


@pytest.mark.parametrize("call", BLOCKING)
def test_ctrl_c_ends(call: str) -> None:
    # Rank 0 does nothing, so that rank 1 waits for it.
    program = (
        "import numpy, os, sys, symmem, time\n"
        "if os.environ['SYMMEM_RANK'] == '0':\n"
        "    c = symmem.init()\n"
        "    try: time.sleep(600)\n"
        "    except KeyboardInterrupt: sys.exit(1)\n"
        "try:\n"
        "    print('blocks', flush=True)\n"
        f"    {BLOCKING[call]}\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    ranks = subprocess.Popen(
        [*RUN, "-c", program], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert ranks.stdout is not None
        said = ranks.stdout.readline()
        while "blocks" not in said:
            said = ranks.stdout.readline()
        time.sleep(1)
        began = time.monotonic()
        os.killpg(ranks.pid, signal.SIGINT)
        rest, _ = ranks.communicate(timeout=LIMIT)
        assert "interrupted" in rest, rest
        # The deadlines are 60 and 600 seconds.
        assert time.monotonic() - began < 30
    finally:
        if ranks.poll() is None:
            os.killpg(ranks.pid, signal.SIGKILL)
