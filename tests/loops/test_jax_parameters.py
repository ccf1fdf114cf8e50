"""A tree of JAX arrays as a model: what passes through, what is exchanged, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import islands
from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.loops.jax_parameters import JaxParameters
from islands.protocol.errors import TaskError
from islands.protocol.settings.run import RunSettings

Tree = dict[str, Array]


def layout() -> Layout:
    return plan([Leaf("a", (8,)), Leaf("b", (3, 8), "bfloat16")], count=2, min_piece_bytes=4)


def tree() -> Tree:
    return {
        "a": jnp.arange(8, dtype=jnp.float32),
        "b": jnp.ones((3, 8), jnp.bfloat16),
        "frozen": jnp.ones(2),
    }


def joined(given: Tree | None = None, *, donate: bool = True) -> JaxParameters:
    return JaxParameters(
        tree() if given is None else given,
        layout(),
        RunSettings(fragments=2),
        donate=donate,
        trainable=lambda path: path != "frozen",
    )


@pytest.fixture
def parameters() -> JaxParameters:
    return joined()


@jax.jit
def stepped(params: Tree) -> Tree:
    """A step of the user's: all leaves grow by one."""
    grown: Tree = jax.tree.map(lambda x: x + jnp.ones((), x.dtype), params)
    return grown


def adopt(parameters: JaxParameters, number: float) -> None:
    for index, fragment in enumerate(parameters.model.layout.fragments):
        parameters.model.adopt(index, np.full(fragment.size, number, np.float32))


def test_trained_leaves_are_exchanged_and_others_pass_through(parameters: JaxParameters) -> None:
    parameters.take(stepped(parameters.give()))
    adopt(parameters, 7)
    found = parameters.give()
    assert {path: (float(x.mean()), str(x.dtype)) for path, x in found.items()} == {
        "a": (7.0, "float32"),
        "b": (7.0, "bfloat16"),
        "frozen": (2.0, "float32"),
    }


def test_a_snapshot_is_what_a_step_changed(parameters: JaxParameters) -> None:
    parameters.take(stepped(parameters.give()))
    for index, fragment in enumerate(parameters.model.layout.fragments):
        sent = np.frombuffer(parameters.model.snapshot(index, "float32").buffer(), np.float32)
        assert sent.tolist() == [-1.0] * fragment.size


def test_a_loop_that_keeps_its_arrays_has_them_still() -> None:
    given = tree()
    parameters = joined(given, donate=False)
    held = parameters.give()
    adopt(parameters, 7)
    assert held["a"].tolist() == given["a"].tolist() == list(range(8))


@pytest.mark.parametrize(("loss", "wanted"), [(None, None), (0.5, 0.5), (jnp.full(2, 3.0), 3.0)])
def test_a_step_is_waited_for_by_its_loss_or_by_what_it_made(
    parameters: JaxParameters, loss: object, wanted: float | None
) -> None:
    parameters.take(stepped(parameters.give()))
    waiting = parameters.dispatched(loss)
    adopt(parameters, 7)  # it donates what the step made
    assert waiting.loss() == wanted


def test_another_tree_is_refused(parameters: JaxParameters) -> None:
    with pytest.raises(TaskError, match="another structure"):
        parameters.take({"a": jnp.zeros(8)})


def test_a_leaf_that_a_step_consumed_is_refused_by_name(parameters: JaxParameters) -> None:
    consuming = jax.jit(lambda params: jax.tree.map(lambda x: x * 2, params), donate_argnums=0)
    given = parameters.give()
    consuming(given)
    with pytest.raises(TaskError, match="a was deleted: it was donated to a step"):
        parameters.take(given)


def test_leaves_that_are_no_arrays_are_refused(parameters: JaxParameters) -> None:
    given = parameters.give()
    with pytest.raises(TaskError, match="a is a ndarray, which is on no device: call jax"):
        parameters.take({**given, "a": np.zeros(8, np.float32)})
    parameters.take({**given, "frozen": np.ones(2)})

    def traced(params: Tree) -> Tree:
        parameters.take(params)
        return params

    with pytest.raises(TaskError, match="a is being traced and has no value: call this between"):
        jax.jit(traced)(given)


@pytest.mark.parametrize("kind", ["numpy", "traced"])
def test_join_refuses_what_is_no_array_before_it_dials(kind: str) -> None:
    def join(params: object) -> object:
        return islands.join("127.0.0.1:1", params, tokens_per_step=1)

    with pytest.raises(TaskError, match="a is a ndarray" if kind == "numpy" else "a is being tr"):
        join({"a": np.zeros(3)}) if kind == "numpy" else jax.jit(join)({"a": jnp.zeros(3)})


def test_parameters_that_are_not_finite_are_refused() -> None:
    with pytest.raises(TaskError, match="not all finite"):
        joined({**tree(), "a": jnp.full(8, jnp.nan)})


@pytest.mark.parametrize("loss", [{"loss": 1.0}, "1.0", jnp.zeros(0)])
def test_what_is_no_loss_is_refused_at_once(loss: object) -> None:
    with pytest.raises(TaskError, match="the loss is a"):
        joined().dispatched(loss)


def test_a_divergence_is_told_once(parameters: JaxParameters) -> None:
    assert not parameters.diverged
    parameters.model.reset_moments()
    assert [parameters.diverged for _ in range(2)] == [True, False]


def test_a_step_that_made_no_numbers_is_told_as_diverged(parameters: JaxParameters) -> None:
    parameters.take(jax.tree.map(lambda x: x * jnp.asarray(jnp.nan, x.dtype), parameters.give()))
    found = parameters.dispatched(None).loss()
    assert found is not None
    assert found != found  # noqa: PLR0124  it is nan
