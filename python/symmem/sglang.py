"""symmem as a plug-in of SGLang: collectives of its tensor-parallel groups on GPU tensors.

``SGLANG_PLUGINS=symmem python -m sglang.launch_server ...``: SGLang loads the plug-in in each of its processes. Nothing changes
without it.
"""

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["install", "register"]

_COORDINATOR = "sglang.srt.distributed.parallel_state.GroupCoordinator"
_METHOD = "symmem"
_GROUPS = frozenset({"tp", "attention_tp", "moe_tp"})
_installed = False


def register() -> None:
    """Do :func:`install` if ``SGLANG_PLUGINS`` names ``symmem``. SGLang calls this as a plug-in of ``sglang.srt.plugins``.

    SGLang loads every plug-in that is installed if the variable is not set, so that does not select this one. SGLang logs what
    :func:`install` raises, and goes on without the plug-in.
    """
    from sglang.srt.environ import envs

    if "symmem" in [name.strip() for name in (envs.SGLANG_PLUGINS.get() or "").split(",")]:
        install()


def install() -> None:
    """Register hooks that make SGLang's groups use symmem. The second call does nothing.

    SGLang applies them when it has loaded its plug-ins; elsewhere ``HookRegistry.apply_hooks()`` does. Ranks of a group named
    tp, attention_tp or moe_tp join when SGLang creates its ``GroupCoordinator``, which then blocks until they have, and raises
    :class:`symmem.Error` if they cannot. all_reduce, all_gather and reduce_scatter of the group are symmem's for the tensors
    that it takes, and SGLang's own for others. They and the scheduler's output raise :class:`symmem.PeerDied`,
    :class:`symmem.Timeout` and the like. Raises :class:`symmem.Unsupported` if this SGLang has other methods.
    """
    import sglang
    from sglang.srt.distributed.parallel_state import GroupCoordinator
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from . import _serving

    global _installed
    if _installed:
        return
    _serving.require(GroupCoordinator, _HOOKS, f"SGLang {sglang.__version__}")
    for name, hook in _HOOKS.items():
        HookRegistry.register(f"{_COORDINATOR}.{name}", hook, HookType.AROUND)
    _installed = True


def _init(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    import torch.distributed as dist

    from . import _serving

    self._symmem = None
    original(self, *args, **kwargs)
    # Elastic groups, whose backend is another, change their ranks; deterministic inference wants sums whose order does not
    # depend on the size.
    if (
        self.unique_name.split(":")[0] in _GROUPS
        and dist.get_backend(self.cpu_group) == "gloo"
        and not self._deterministic_collectives_enabled()
    ):
        self._symmem = _serving.join(self.unique_name, self.cpu_group, self.device)
    if self._symmem is not None:
        _watch_output()


def _method(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    tensor = kwargs["input_"] if "input_" in kwargs else args[0]
    member = self._symmem
    if member is not None and member.takes_sum(tensor):
        return _METHOD
    return original(self, *args, **kwargs)


def _out_of_place(original: Callable[..., Any], self: Any, input_: Any, outplace_all_reduce_method: str) -> Any:
    # "auto" is compiled code's, in which SGLang chooses only when it runs.
    member = self._symmem
    if outplace_all_reduce_method in (_METHOD, "auto") and member is not None and member.takes_sum(input_):
        return member.group.all_reduce(input_)
    return original(self, input_, outplace_all_reduce_method)


def _in_place(original: Callable[..., Any], self: Any, input_: Any) -> Any:
    member = self._symmem
    if member is not None and member.takes_sum(input_):
        member.group.all_reduce_(input_)
        return None
    return original(self, input_)


def _gather(original: Callable[..., Any], self: Any, output: Any, input: Any) -> Any:
    member = self._symmem
    if member is not None and output.is_contiguous() and member.takes_gather(input):
        member.group.all_gather_into(output, input)
        return None
    return original(self, output, input)


def _scatter(original: Callable[..., Any], self: Any, output: Any, input: Any) -> Any:
    member = self._symmem
    if member is not None and output.is_contiguous() and member.takes_scatter(input):
        return member.group.reduce_scatter_into(output, input)
    return original(self, output, input)


def _destroy(original: Callable[..., None], self: Any) -> None:
    member, self._symmem = self._symmem, None
    if member is not None:
        member.leave()
    original(self)


_HOOKS: dict[str, Callable[..., Any]] = {
    "__init__": _init,
    "_resolve_outplace_all_reduce_method": _method,
    "_all_reduce_out_place": _out_of_place,
    "_all_reduce_in_place": _in_place,
    "_all_gather_into_tensor": _gather,
    "_reduce_scatter_tensor": _scatter,
    "destroy": _destroy,
}


def _watch_output() -> None:
    """Make SGLang's scheduler raise the error of a failed collective before it sends a step's tokens.

    A replay of a CUDA graph calls no operator that could raise it, and its results are undefined after a failure.
    """
    from . import _serving

    # Not imported here: in a scheduler it is there already, and other processes do not need it.
    module = sys.modules.get("sglang.srt.managers.scheduler_components.output_streamer")
    if module is not None:
        _serving.wrap(module.SchedulerOutputStreamer, "stream_output", _before_output)


def _before_output(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from . import check

    check()
    return original(*args, **kwargs)
