"""symmem as a plug-in of vLLM: collectives of its tensor-parallel groups on GPU tensors.

``VLLM_PLUGINS=symmem vllm serve ...``: vLLM loads the plug-in in each of its processes. Nothing changes without it.
"""

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["install", "register"]

_REPLACED = ("__init__", "all_reduce", "all_gather", "reduce_scatter", "destroy")


def register() -> None:
    """Do :func:`install` if ``VLLM_PLUGINS`` names ``symmem``. vLLM calls this as a plug-in of ``vllm.general_plugins``.

    vLLM loads every plug-in that is installed if the variable is not set, so that does not select this one. Raises what
    :func:`install` raises, which ends vLLM's process.
    """
    from vllm import envs

    if "symmem" in (envs.VLLM_PLUGINS or ()):
        install()


def install() -> None:
    """Make vLLM's groups that are created from now on use symmem. The second call does nothing.

    Ranks of a tensor-parallel group join when vLLM creates its ``CudaCommunicator``, which then blocks until they have, and
    raises :class:`symmem.Error` if they cannot. all_reduce, all_gather and reduce_scatter of the communicator are symmem's for
    the tensors that it takes, and vLLM's own for others. They and vLLM's steps raise :class:`symmem.PeerDied`,
    :class:`symmem.Timeout` and the like. Raises :class:`symmem.Unsupported` if this vLLM has other methods.
    """
    import vllm
    from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator

    from . import _serving

    _serving.require(CudaCommunicator, _REPLACED, f"vLLM {vllm.__version__}")
    for name in _REPLACED:
        _serving.wrap(CudaCommunicator, name, globals()[f"_{name.strip('_')}"])


def _init(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    from vllm import envs

    from . import _serving

    self._symmem = None
    original(self, *args, **kwargs)
    # Groups with other names gather once a step at most. A stateless group has no ranks of torch.distributed, and vLLM's
    # batch-invariant mode wants sums whose order does not depend on the size.
    if self.unique_name.split(":")[0] != "tp" or kwargs.get("tcp_store_group") is not None or envs.VLLM_BATCH_INVARIANT:
        return
    self._symmem = _serving.join(self.unique_name, self.cpu_group, self.device)
    if self._symmem is not None:
        _watch_steps()


def _all_reduce(original: Callable[..., Any], self: Any, input_: Any) -> Any:
    member = self._symmem
    if member is not None and member.takes_sum(input_):
        return member.group.all_reduce(input_)
    return original(self, input_)


def _all_gather(original: Callable[..., Any], self: Any, input_: Any, dim: int = -1) -> Any:
    member = self._symmem
    if member is not None and member.takes_gather(input_):
        return member.all_gather(input_, dim)
    return original(self, input_, dim)


def _reduce_scatter(original: Callable[..., Any], self: Any, input_: Any, dim: int = -1) -> Any:
    member = self._symmem
    if member is not None and member.takes_scatter(input_, dim):
        return member.reduce_scatter(input_, dim)
    return original(self, input_, dim)


def _destroy(original: Callable[..., None], self: Any) -> None:
    member, self._symmem = self._symmem, None
    if member is not None:
        member.leave()
    original(self)


def _watch_steps() -> None:
    """Make vLLM's worker raise the error of a failed collective before it returns a step's tokens.

    A replay of a CUDA graph calls no operator that could raise it, and its results are undefined after a failure.
    """
    from . import _serving

    # Not imported here: in a worker it is there already, and other processes do not need it.
    module = sys.modules.get("vllm.v1.worker.gpu_worker")
    if module is None:
        return
    for name in ("execute_model", "sample_tokens"):
        if hasattr(module.Worker, name):
            _serving.wrap(module.Worker, name, _step)


def _step(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from . import _serving

    output = _serving.checked(original, *args, **kwargs)
    # The output of an asynchronous step waits for the GPU when it is read.
    if hasattr(output, "get_output"):
        _serving.wrap(output, "get_output", _serving.checked)
    return output
