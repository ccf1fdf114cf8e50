"""What a loop of PyTorch cannot take part with is refused in a sentence, before it dials."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from islands.protocol.errors import SettingsError, TaskError, UserError
from tests.loops.test_boundaries_without_a_step import of_torch

torch = pytest.importorskip("torch")

from islands.loops import join_torch  # noqa: E402
from islands.loops.torch_parameters import TorchParameters  # noqa: E402
from tests.loops.test_torch_parameters import Network, layout_of  # noqa: E402

NOWHERE = "127.0.0.1:1"
"""No hub listens there, so whoever dials it waits for a minute."""


def refused(kind: type[UserError], sentence: str, module: object, optimizer: object = None) -> None:
    """Join nowhere, and be refused before that is found out."""
    with pytest.raises(kind, match=sentence):
        join_torch.join(NOWHERE, module, optimizer, tokens_per_step=1)


@pytest.fixture(name="group")
def _group(tmp_path: Path) -> Iterator[None]:
    distributed = torch.distributed
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_one_of_several_processes_is_refused() -> None:
    """Replicas would diverge without a word; a group that is formed later is found, too."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    module = Network()
    parameters = TorchParameters(module, layout_of())
    parameters.take(module)
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=1, world_size=2)
    try:
        refused(SettingsError, "2 processes here, and a learner of PyTorch is one process", module)
        with pytest.raises(SettingsError, match="2 processes here"):
            parameters.take(module)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_sharded_parameter_is_refused() -> None:
    tensors = importlib.import_module("torch.distributed.tensor")
    module = Network()
    tensors.distribute_module(module, torch.distributed.init_device_mesh("cpu", (1,)))
    refused(TaskError, "first/weight is a DTensor, which is cut over a mesh", module)
    TorchParameters(Network(), layout_of())


def test_parameters_that_no_step_can_change_are_refused() -> None:
    with torch.inference_mode():
        module = Network()
    refused(TaskError, "first/weight was made in torch.inference_mode", module)
    refused(TaskError, "weight has no shape yet: call the module once", torch.nn.LazyLinear(3))
    with torch.device("meta"):
        refused(TaskError, "first/weight is on the device meta", Network())


def test_an_optimizer_of_other_tensors_is_refused() -> None:
    module = Network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module.load_state_dict(Network().state_dict(), assign=True)
    refused(TaskError, "the SGD holds none of the module's parameters", module, optimizer)


@pytest.mark.parametrize("how", ["assigned", "loaded", "submodule"])
def test_parameters_that_were_replaced_are_found(how: str) -> None:
    """The values that are exchanged would be those of a tensor that nobody computes with."""
    module = Network()
    parameters = TorchParameters(module, layout_of())
    parameters.take(module)
    if how == "assigned":
        module.first.weight = torch.nn.Parameter(module.first.weight.detach())
    elif how == "loaded":
        module.load_state_dict(module.state_dict(), assign=True)
    else:
        module.first = torch.nn.Linear(5, 6)
    with pytest.raises(TaskError, match=r"first/weight was replaced .* the optimizer still steps"):
        parameters.take(module)


def test_a_module_of_another_dtype_is_refused() -> None:
    with pytest.raises(TaskError, match="is bfloat16 here and float32 in the run"):
        TorchParameters(Network().bfloat16(), layout_of())


class Wrapper:
    """An optimizer as Accelerate wraps one: without hooks, it steps where gradients are whole."""

    def __init__(self, optimizer: object) -> None:
        self.optimizer = optimizer
        self.whole = True

    def step(self) -> None:
        """Step, unless gradients are accumulated."""
        if self.whole:
            self.optimizer.step()  # type: ignore[attr-defined]  # PyTorch need not be installed


def test_an_optimizer_that_accelerate_wraps_is_unwrapped() -> None:
    loop, module, inner = of_torch(watched=False, fused=True)
    optimizer = Wrapper(inner)
    assert join_torch.unwrapped(Wrapper(optimizer)) is inner
    parameters: Any = loop.parameters
    join_torch.follow(loop.run, parameters, join_torch.unwrapped(optimizer))
    for number in range(8):
        module.a.sum().backward()
        optimizer.whole = number % 4 == 3
        optimizer.step()
    assert loop.compute.boundary.steps == 2
    assert not loop.background.told


def test_running_statistics_are_told() -> None:
    module = Network()
    module.register_buffer("mask", torch.ones(3))
    assert join_torch.local_buffers(module) == ""
    module.norm = torch.nn.BatchNorm1d(4, affine=False)
    module.other = torch.nn.Sequential(torch.nn.BatchNorm1d(4, affine=False))
    told = join_torch.local_buffers(module)
    assert told.startswith("the running statistics of norm and 1 more are buffers, so they are not")


class Ends:
    """A run whose boundary fails, or that was left."""

    params = None

    def __init__(self) -> None:
        self.failing = False
        self.boundaries = 0
        self.undone: list[Callable[[], object]] = []

    def boundary(self, _: object) -> None:
        self.boundaries += 1
        if self.failing:
            message = "the hub is gone"
            raise RuntimeError(message)

    def at_its_end(self, undo: Callable[[], object]) -> None:
        self.undone.append(undo)


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_that_is_over_leaves_no_hook_in_the_optimizer(*, fails: bool) -> None:
    module = torch.nn.Linear(2, 2)
    optimizer, run = torch.optim.SGD(module.parameters(), 0.1), Ends()
    parameters = SimpleNamespace(optimizer_stepped=lambda _: None)
    join_torch.follow(run, parameters, optimizer)  # type: ignore[arg-type]  # what it uses of them
    optimizer.step()
    assert run.boundaries == 2
    run.failing = fails
    if fails:
        with pytest.raises(RuntimeError, match="the hub is gone"):
            optimizer.step()
    for undo in run.undone:
        undo()
    before = run.boundaries
    optimizer.step()
    assert run.boundaries == before
