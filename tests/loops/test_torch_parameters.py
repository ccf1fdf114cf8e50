"""A PyTorch module as a model: what it sends and adopts is what NumPy computes."""

from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.protocol.errors import TaskError

torch = pytest.importorskip("torch")

from islands.loops.torch_parameters import TorchParameters  # noqa: E402  (it needs PyTorch)

Floats = NDArray[np.float32]
MODULE: Any = torch.nn.Module
SHAPES = (("first/weight", (6, 5)), ("first/bias", (6,)), ("second/weight", (4, 6)))


def layout_of(shapes: tuple[tuple[str, tuple[int, ...]], ...] = SHAPES) -> Layout:
    return plan([Leaf(path, shape) for path, shape in shapes], count=3, min_piece_bytes=4)


class Network(MODULE):  # type: ignore[misc]  # PyTorch need not be installed
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = torch.nn.Linear(5, 6)
        self.second = torch.nn.Linear(6, 4, bias=False)


def random(seed: int, size: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def stepped(module: Network) -> None:
    """A step of the user's: it changes the parameters in place."""
    with torch.no_grad():
        for number, tensor in enumerate(module.parameters()):
            tensor.add_(0.1 * (number + 1))


@pytest.mark.parametrize("fragment", range(3))
def test_a_snapshot_is_base_minus_local(fragment: int) -> None:
    module = Network()
    model = TorchParameters(module, layout_of()).model
    base = model.value(fragment)
    stepped(module)
    wanted = base - model.value(fragment)
    assert model.snapshot(fragment, "float32").buffer() == wanted.view(np.uint8).data
    rounded = model.snapshot(fragment, "bfloat16").buffer()
    halves = np.frombuffer(rounded, np.uint16).astype(np.uint32) << 16
    np.testing.assert_allclose(halves.view(np.float32), wanted, rtol=2**-8)


@pytest.mark.parametrize("fragment", range(3))
def test_adoptions_change_the_module_in_place(fragment: int) -> None:
    module = Network()
    model = TorchParameters(module, layout_of()).model
    held = list(module.parameters())
    size = model.layout.fragments[fragment].size
    value = random(2, size)
    model.adopt(fragment, value)
    np.testing.assert_array_equal(model.value(fragment), value)
    stepped(module)
    local, sent, new = model.value(fragment), random(3, size), random(4, size)
    model.carry_on(fragment, new, sent)
    np.testing.assert_allclose(model.value(fragment), local + (new - (value - sent)), rtol=1e-5)
    local = model.value(fragment)
    model.mix(fragment, value, 0.25)
    np.testing.assert_allclose(model.value(fragment), 0.25 * local + 0.75 * value, rtol=1e-5)
    assert all(a is b for a, b in zip(held, module.parameters(), strict=True))


def test_matrices_may_lie_transposed() -> None:
    module = Network()
    shapes = (("first/kernel", (5, 6)), ("first/bias", (6,)), ("second/weight", (4, 6)))
    parameters = TorchParameters(
        module,
        layout_of(shapes),
        rename={"first/weight": "first/kernel"},
        transposed=["first/weight"],
    )
    flat = {path: random(n, prod(shape)) for n, (path, shape) in enumerate(shapes)}
    arrays = {path: flat[path].reshape(shape) for path, shape in shapes}
    for index, value in enumerate(parameters.model.layout.disassemble(arrays)):
        parameters.model.adopt(index, value)
    np.testing.assert_array_equal(module.first.weight.detach().numpy(), arrays["first/kernel"].T)
    np.testing.assert_array_equal(module.second.weight.detach().numpy(), arrays["second/weight"])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TaskError, match="transposed names third"):
        TorchParameters(Network(), layout_of(), transposed=["third"])
    module = Network()
    with torch.no_grad():
        module.first.bias[0] = torch.nan
    with pytest.raises(TaskError, match="not all finite"):
        TorchParameters(module, layout_of())


def test_a_module_that_was_converted_is_refused() -> None:
    """What is exchanged would be tensors that nobody trains any more."""
    module = Network()
    parameters = TorchParameters(module, layout_of())
    parameters.take(module)
    module.half()
    with pytest.raises(TaskError, match="first/weight was moved or replaced"):
        parameters.take(module)


def test_a_step_tells_its_loss_and_whether_it_made_numbers() -> None:
    module = Network()
    parameters = TorchParameters(module, layout_of())
    assert parameters.dispatched(None).loss() is None
    told = {"accuracy": torch.tensor(0.25, requires_grad=True), "norm": 2}
    assert parameters.dispatched(None, told).metrics() == {"accuracy": 0.25, "norm": 2.0}
    assert parameters.dispatched(torch.tensor([0.5], requires_grad=True)).loss() == 0.5
    with pytest.raises(TaskError, match="the loss is a dict"):
        parameters.dispatched({"loss": 1.0})
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.fill_(torch.nan)
    assert str(parameters.dispatched(None).loss()) == "nan"
