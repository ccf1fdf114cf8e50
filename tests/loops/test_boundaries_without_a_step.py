"""A boundary that shows no step books none, in JAX and in PyTorch, however the loop is written."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.loops.jax_parameters import JaxParameters
from islands.loops.joined_run import NO_STEP
from islands.loops.own_model import Parameters
from islands.protocol.identities import Lease
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.shards import ShardPlan
from tests.loops.test_joined_run import OwnLoop

SETTINGS = RunSettings(fragments=2)
LAYOUT = plan([Leaf("a", (8,)), Leaf("b", (3, 8))], count=2, min_piece_bytes=4)
Tree = dict[str, Array]


class Loop(OwnLoop):
    """A run of one loop, which may take as many steps as a test wants."""

    def __init__(self, parameters: Parameters[Any], *rest: Any) -> None:  # noqa: ANN401
        self.parameters = parameters
        super().__init__(parameters, 1000, *rest)


def tree() -> Tree:
    return {"a": jnp.ones(8), "b": jnp.ones((3, 8)), "count": jnp.zeros(())}


def of_jax(*, donate: bool = True) -> Loop:
    trained = lambda path: path != "count"  # noqa: E731
    parameters = JaxParameters(tree(), LAYOUT, SETTINGS, donate=donate, trainable=trained)
    return Loop(parameters)


@jax.jit
def stepped(params: Tree) -> Tree:
    return {**params, "a": params["a"] + 1.0, "b": params["b"] * 2.0}


def test_one_step_among_fifty_boundaries_is_one_step() -> None:
    loop = of_jax()
    with loop.run as run:
        params = run.params
        for number in range(50):
            params = run.boundary(params, 0.5)
            if number == 20:
                params = stepped(params)
        run.done(params)
    assert loop.compute.boundary.steps == 1
    assert loop.background.told == [f"ana: {NO_STEP}"]


def test_values_that_were_adopted_are_no_step() -> None:
    loop = of_jax()
    params = loop.run.boundary(loop.run.params)
    for number in range(2, 9):
        loop.adopt(number)
        params = loop.run.boundary(params)
        assert params["a"].tolist() == [number] * 8
    assert loop.compute.boundary.steps == 0


def test_a_loop_that_keeps_its_own_arrays_takes_no_step_by_them() -> None:
    loop = of_jax(donate=False)
    mine = loop.run.params
    loop.run.boundary(mine)
    loop.adopt(7)
    for _ in range(3):
        found = loop.run.boundary(mine)
        assert found["a"].tolist() == [7] * 8
    assert loop.compute.boundary.steps == 0


def test_what_is_not_trained_shows_no_step() -> None:
    loop = of_jax()
    params = loop.run.boundary(loop.run.params)
    for number in range(5):
        params = loop.run.boundary({**params, "count": jnp.float32(number)})
    assert float(params["count"]) == 4
    assert loop.compute.boundary.steps == 0


def test_a_wrapped_step_that_changes_nothing_is_none() -> None:
    loop = of_jax()
    calls = iter(range(1, 100))

    def step(state: Tree) -> Tree:
        return stepped(state) if next(calls) % 4 == 0 else state

    wrapped = loop.run.around(step, get=lambda state: state, put=lambda _, params: params)
    state: Tree = loop.run.params
    for _ in range(40):
        state = wrapped(state)
    loop.run.done(state)
    assert loop.compute.boundary.steps == 10


def leased(
    tokens: int, micro: int, *, steps: int = 3, records: int = 64
) -> tuple[list[list[int]], Loop]:
    """Take steps of several batches of four records each; return what was read, by step."""
    parameters = JaxParameters({"a": jnp.ones(8), "b": jnp.ones((3, 8))}, LAYOUT, SETTINGS)
    loop = Loop(parameters, ShardPlan(records, 1, seed=1), tokens)
    batches = loop.run.batches(lambda indices: indices.tolist(), 4)
    params, read = loop.run.params, []
    for _ in range(steps):
        taken: list[int] = []
        for _ in range(micro):
            params = loop.run.boundary(params)
            taken += next(batches)
        read.append(taken)
        params = stepped({**params, "count": jnp.zeros(())})
        del params["count"]
    loop.run.done(params)
    return read, loop


def test_batches_of_one_step_are_different_records() -> None:
    read, loop = leased(tokens=16, micro=4)
    assert len({record for step in read for record in step}) == 3 * 16
    assert loop.compute.boundary.data.leases == (Lease(0, 0, 3 * 16),)


def test_records_that_the_tokens_of_a_step_do_not_pay_are_read_again() -> None:
    read, loop = leased(tokens=8, micro=3)
    assert [len(set(step)) for step in read] == [8, 8, 8]
    assert read[0][8:] == read[0][:4]
    assert loop.compute.boundary.data.leases == (Lease(0, 0, 3 * 4),)


def test_a_step_whose_leases_are_read_to_their_end_goes_on() -> None:
    """Others are leased for steps that are booked alone: waiting for them would have no end."""
    read, loop = leased(tokens=100, micro=5, steps=1, records=12)
    assert read[0][12:] == read[0][:8]
    assert loop.compute.boundary.data.leases == (Lease(0, 0, 8),)


torch: Any = None


def of_torch(*, watched: bool = True, **options: bool) -> tuple[Loop, Any, Any]:
    """A loop of PyTorch that may hear of all optimizers; its module, and an optimizer."""
    global torch  # noqa: PLW0603  it need not be installed
    torch = pytest.importorskip("torch")
    from islands.loops.torch_parameters import TorchParameters

    module = torch.nn.Module()
    module.a = torch.nn.Parameter(torch.ones(8))
    module.b = torch.nn.Parameter(torch.ones(3, 8))
    parameters = TorchParameters(module, LAYOUT)
    if watched:
        parameters.watch_optimizers()
    return Loop(parameters), module, torch.optim.Adam(module.parameters(), lr=0.1, **options)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_steps_of_an_optimizer_of_pytorch_are_found(options: dict[str, bool]) -> None:
    loop, module, optimizer = of_torch(**options)
    with loop.run as run:
        for number in range(50):
            run.boundary(module)
            if number in (20, 30):
                (module.a.sum() + module.b.sum()).backward()
                optimizer.step()
                optimizer.zero_grad()
        run.done(module)
    assert loop.compute.boundary.steps == 2
    assert loop.background.told == [f"ana: {NO_STEP}"]


def test_an_optimizer_without_gradients_takes_no_step() -> None:
    loop, module, optimizer = of_torch(fused=True)
    other = torch.nn.Linear(2, 2)
    elsewhere = torch.optim.SGD(other.parameters(), lr=0.1)
    loop.run.boundary(module)
    for number in range(2, 6):
        loop.adopt(number)
        optimizer.step()
        other(torch.ones(2)).sum().backward()
        elsewhere.step()
        loop.run.boundary(module)
        assert module.a.tolist() == [number] * 8
    assert loop.compute.boundary.steps == 0


def test_a_step_that_a_scaler_skips_is_none() -> None:
    loop, module, optimizer = of_torch()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (float("inf"), 1.0):
        loop.run.boundary(module)
        optimizer.zero_grad()
        scaler.scale(module.a.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    loop.run.done(module)
    assert loop.compute.boundary.steps == 1


def test_a_loop_that_changes_its_parameters_by_hand_takes_steps() -> None:
    loop, module, _ = of_torch()
    for _ in range(3):
        loop.run.boundary(module)
        with torch.no_grad():
            module.a.add_(1.0)
    loop.run.done(module)
    assert loop.compute.boundary.steps == 3
