"""Every rank sums a tensor with all others, then passes its result on in a ring.

symmem run -n 2 -- python examples/python/ring.py
"""

import symmem

communicator = symmem.init()
rank, world = communicator.rank, communicator.world_size

if communicator.backend == "host":
    import numpy as xp
else:
    import torch as xp

    xp.set_default_device(f"cuda:{communicator.device}")

x = xp.ones(1000) * (rank + 1)
communicator.all_reduce(x)  # any tensor of this rank's device
assert x[0] == world * (world + 1) / 2

inbox, outbox = communicator.allocate(4, "float32"), communicator.allocate(4, "float32")
xp.from_dlpack(outbox)[:] = rank  # a symmetric buffer is a tensor, without a copy
communicator.put_signal((rank + 1) % world, inbox, outbox)
communicator.wait_signal((rank - 1) % world)
print(f"rank {rank} of {world}: {xp.from_dlpack(inbox)} from rank {(rank - 1) % world}")

communicator.barrier()
inbox.free()
outbox.free()
communicator.finalize()
