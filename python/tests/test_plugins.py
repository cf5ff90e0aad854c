"""What the plug-ins of vLLM and SGLang decide, without either package: small stand-ins have the modules and methods they use."""

import sys
from importlib.metadata import entry_points
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import symmem
import symmem.sglang
import symmem.vllm


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def vllm(monkeypatch: pytest.MonkeyPatch, plugins: list[str] | None, communicator: type) -> None:
    envs = SimpleNamespace(VLLM_PLUGINS=plugins, VLLM_BATCH_INVARIANT=False)
    module(monkeypatch, "vllm", __version__="stand-in", envs=envs, __path__=[])
    for name in ("vllm.distributed", "vllm.distributed.device_communicators"):
        module(monkeypatch, name, __path__=[])
    last = "vllm.distributed.device_communicators.cuda_communicator"
    module(monkeypatch, last, CudaCommunicator=communicator)


def communicator_class() -> type:
    class CudaCommunicator:
        def __init__(self, name: str) -> None:
            self.unique_name = name

        def all_reduce(self, input_: Any) -> Any:
            return ("own", input_)

        def all_gather(self, input_: Any, dim: int = -1) -> Any:
            return ("own", input_, dim)

        def reduce_scatter(self, input_: Any, dim: int = -1) -> Any:
            return ("own", input_, dim)

        def destroy(self) -> None:
            self.unique_name = "destroyed"

    return CudaCommunicator


@pytest.mark.parametrize("group", ["vllm.general_plugins", "sglang.srt.plugins"])
def test_engines_find_the_plug_in(group: str) -> None:
    [found] = [one for one in entry_points(group=group) if one.name == "symmem"]
    assert callable(found.load())


@pytest.mark.parametrize("plugins", [None, [], ["another"]])
def test_vllm_is_unchanged_unless_its_variable_names_the_plug_in(
    plugins: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    communicator = communicator_class()
    before = dict(vars(communicator))
    vllm(monkeypatch, plugins, communicator)
    symmem.vllm.register()
    assert dict(vars(communicator)) == before


def test_groups_that_symmem_does_not_serve_go_vllms_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    communicator = communicator_class()
    vllm(monkeypatch, ["symmem"], communicator)
    symmem.vllm.register()
    once = communicator.all_reduce  # type: ignore[attr-defined]
    symmem.vllm.register()
    assert communicator.all_reduce is once  # type: ignore[attr-defined]
    group = communicator("pp:0")
    assert group.all_reduce(1) == ("own", 1)
    assert group.all_gather(1) == ("own", 1, -1) and group.reduce_scatter(1, dim=0) == ("own", 1, 0)
    group.destroy()
    assert group.unique_name == "destroyed"


def test_another_vllm_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    vllm(monkeypatch, ["symmem"], type("CudaCommunicator", (), {"all_reduce": print, "destroy": print}))
    with pytest.raises(symmem.Unsupported, match=r"stand-in: CudaCommunicator has no all_gather, reduce_scatter"):
        symmem.vllm.register()


def test_a_step_raises_the_error_before_its_tokens_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from symmem import _serving

    class Output:
        def get_output(self) -> str:
            return "tokens"

    class Worker:
        def execute_model(self) -> Output:
            return Output()

    module(monkeypatch, "vllm.v1.worker.gpu_worker", Worker=Worker)
    symmem.vllm._watch_steps()
    output = Worker().execute_model()
    assert output.get_output() == "tokens"

    def died() -> None:
        raise symmem.PeerDied("rank 1")

    monkeypatch.setattr(_serving, "check", died)
    for read in (output.get_output, Worker().execute_model):
        with pytest.raises(symmem.PeerDied):
            read()


def test_symmem_takes_what_it_has_a_type_and_a_measured_size_for() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from symmem import _serving

    member = _serving.Member(SimpleNamespace(world=2), torch.device("cpu"))  # type: ignore[arg-type]
    assert member.takes_sum(torch.ones(8, 4)) and member.takes_gather(torch.ones(8, dtype=torch.int64))
    assert not member.takes_sum(torch.ones(8, dtype=torch.int64))
    assert not member.takes_gather(torch.ones(8, dtype=torch.bool))
    assert not member.takes_sum(torch.ones(8, 4).t()) and not member.takes_sum(torch.ones(()))
    assert not member.takes_sum(torch.ones(0, 4)) and not member.takes_sum(torch.ones(4, device="meta"))
    most = member.most_bytes // 4
    assert member.takes_sum(torch.empty(most)) and not member.takes_sum(torch.empty(most + 1))
    assert member.takes_gather(torch.empty(most // 2)) and not member.takes_gather(torch.empty(most // 2 + 1))
    assert member.takes_scatter(torch.ones(3, 4), 1) and not member.takes_scatter(torch.ones(3, 4), 0)
    assert [_serving.most_bytes(ranks) >> 20 for ranks in (2, 3, 4, 8, 9)] == [32, 8, 8, 2, 1]


@pytest.mark.parametrize("plugins", [None, "", "another"])
def test_sglang_is_unchanged_unless_its_variable_names_the_plug_in(
    plugins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = SimpleNamespace(SGLANG_PLUGINS=SimpleNamespace(get=lambda: plugins))
    for name in ("sglang", "sglang.srt"):
        module(monkeypatch, name, __path__=[])
    module(monkeypatch, "sglang.srt.environ", envs=envs)
    monkeypatch.setattr(symmem.sglang, "install", lambda: pytest.fail("installed"))
    symmem.sglang.register()
    envs.SGLANG_PLUGINS = SimpleNamespace(get=lambda: "another, symmem")
    called: list[bool] = []
    monkeypatch.setattr(symmem.sglang, "install", lambda: called.append(True))
    symmem.sglang.register()
    assert called == [True]
