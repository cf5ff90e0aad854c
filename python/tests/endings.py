"""How a rank ends with work on its streams: python endings.py HOW WHAT. A rank that returns has not crashed."""

import contextlib
import gc
import sys
import threading
import time

import numpy as np

import symmem


def work(c: symmem.Communicator) -> tuple[symmem.Stream, np.ndarray]:
    stream = c.stream()
    # As large as the arrays whose memory goes back to the system when they are dropped.
    x = np.ones(1 << 21)
    for _ in range(10):
        c.all_reduce(x, stream=stream)
    # No rank ends before all have work.
    c.host_barrier()
    return stream, x


def main(how: str, what: str) -> None:
    c = symmem.init(deadline=20)
    held: list[object] = []
    if what == "buffer":
        held.append(c.allocate(8, "float32"))
    elif what == "view":
        held.append(np.asarray(c.allocate(8, "float32")))
    elif what == "product":
        held.append(c.all_gather_gemm(4, 4, 4, "float16"))
    elif what == "cycle":
        held.append(c.allocate(8, "float32"))
        held.append(held)
    elif what == "call":
        # It waits for what nobody sends.
        thread = threading.Thread(target=lambda: c.recv(1 - c.rank, np.ones(3)), daemon=True)
        thread.start()
        time.sleep(0.3)
        return
    stream, x = work(c)
    if how == "leave":
        c.leave()
    elif how == "abort":
        c.abort()
        c.leave()
    elif how == "drop":
        del c
    elif how == "exit":
        del x, stream, held
        return
    del x
    gc.collect()
    time.sleep(0.5)
    again = [np.zeros(1 << 21) for _ in range(4)]
    time.sleep(0.5)
    assert all((one == 0).all() for one in again)
    del stream, held


if __name__ == "__main__":
    # A rank that aborts may end the barrier of the other.
    with contextlib.suppress(symmem.PeerFailed):
        main(sys.argv[1], sys.argv[2])
