"""The state of a user's optimizer: what one loop reads of it is what another one goes on with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, PyTree

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.loops import own_model
from islands.loops.jax_parameters import JaxMoments, JaxParameters, shared_path
from islands.model.placement import CompiledFunctions
from islands.protocol.errors import InvariantError, TaskError
from islands.protocol.settings.run import RunSettings

LAYOUT = plan([Leaf("a", (8,)), Leaf("b", (3, 8), "bfloat16")], count=2, min_piece_bytes=4)
OPTIMIZER = optax.adam(1e-2)
OTHER_NAMES = {"second": "a", "first": "b"}  # in another order than those of the run
PIECE_BYTES = 40


def tree(first: str = "a", second: str = "b") -> dict[str, Array]:
    return {first: jnp.arange(8, dtype=jnp.float32), second: jnp.ones((3, 8), jnp.bfloat16)}


def joined(params: PyTree, opt_state: PyTree, **more: Any) -> JaxParameters:  # noqa: ANN401
    return JaxParameters(params, LAYOUT, RunSettings(fragments=2), optimizer=opt_state, **more)


def stepped(params: PyTree, opt_state: PyTree) -> tuple[PyTree, PyTree]:
    gradients = jax.tree.map(lambda x: jnp.ones_like(x) * 0.5, params)
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        updates, opt_state = OPTIMIZER.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def given(parameters: JaxParameters) -> list[memoryview]:
    model = parameters.model
    return [model.read_moments(piece).buffer() for piece in range(model.moment_pieces)]


def bits(state: PyTree) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_model, "MOMENT_PIECE_BYTES", PIECE_BYTES)


def test_a_restarted_loop_goes_on_with_a_peers_moments() -> None:
    step = jax.jit(stepped, donate_argnums=(0, 1))
    donor = joined(tree(), OPTIMIZER.init(tree()))
    donor.take(*step(donor.give(), donor.optimizer))
    again = joined(tree(), OPTIMIZER.init(tree()))
    assert again.model.moments_schema == donor.model.moments_schema
    assert donor.model.moment_pieces > 3, "the matrix does not fit into one"
    for _ in range(2):  # JAX was free to move the first state, and not what a step made of it
        again.take(*step(again.give(), again.optimizer))
    compiled = step._cache_size()  # type: ignore[attr-defined]  # noqa: SLF001  JAX tells nowhere
    pieces = given(donor)
    again.model.load_moments(pieces)
    assert bits(again.optimizer) == bits(donor.optimizer)
    again.take(*step(again.give(), again.optimizer))
    assert step._cache_size() == compiled  # type: ignore[attr-defined]  # noqa: SLF001
    donor.take(*step(donor.give(), donor.optimizer))
    assert b"".join(given(donor)) != b"".join(pieces), "it was not read anew"


def test_names_of_ones_own_are_those_of_the_run() -> None:
    donor = joined(tree(), OPTIMIZER.init(tree()))
    donor.take(*stepped(donor.give(), donor.optimizer))
    own = tree("second", "first")
    renamed = joined(own, OPTIMIZER.init(own), rename=OTHER_NAMES)
    assert renamed.model.moments_schema == donor.model.moments_schema
    renamed.model.load_moments(given(donor))
    found, wanted = renamed.optimizer[0], donor.optimizer[0]
    assert bits((found.mu["second"], found.nu["first"])) == bits((wanted.mu["a"], wanted.nu["b"]))


def test_a_path_is_that_of_its_parameter() -> None:
    known = {"w": ("x", (2,)), "layer/w": ("y", (2,)), "v": ("z", (3,))}
    assert shared_path("0/mu/layer/w", (2,), known) == "0/mu/y"
    assert shared_path("0/mu/w", (2,), known) == "0/mu/x"
    assert shared_path("0/v", (), known) == "0/v"


@pytest.mark.parametrize("spoil", ["size", "number", "nan"])
def test_what_a_peer_gives_is_checked(spoil: str) -> None:
    parameters = joined(tree(), OPTIMIZER.init(tree()))
    before = bits(parameters.optimizer)
    pieces = [memoryview(bytearray(piece)) for piece in given(parameters)]
    if spoil == "size":
        pieces[-1] = pieces[-1][:-1]
    elif spoil == "number":
        pieces.pop()
    else:
        pieces[-1][:] = b"\xff" * pieces[-1].nbytes
    with pytest.raises(InvariantError):
        parameters.model.load_moments(pieces)
    assert bits(parameters.optimizer) == before
    assert not parameters.diverged


def test_keys_are_given_and_what_is_no_array_passes_through() -> None:
    def state(seed: int, label: str) -> PyTree:
        return {"key": jax.random.key(seed), "label": label, "count": jnp.int32(seed)}

    def moments(seed: int, label: str) -> JaxMoments:
        return JaxMoments(state(seed, label), {}, CompiledFunctions())

    donor, again = moments(1, "donor"), moments(2, "again")
    again.load([donor.read(piece).buffer() for piece in range(len(donor.plan.pieces))])
    found = again.give()
    assert (found["label"], int(found["count"])) == ("again", 1)
    assert (
        jax.random.key_data(found["key"]).tolist()
        == jax.random.key_data(jax.random.key(1)).tolist()
    )
    assert found["key"].dtype == jax.random.key(2).dtype, "steps draw from it as before"


def test_a_state_that_is_not_the_one_that_joined_is_refused() -> None:
    parameters = joined(tree(), OPTIMIZER.init(tree()))
    with pytest.raises(TaskError, match="an optimizer's state of another structure"):
        parameters.take(parameters.give(), optax.sgd(1.0).init(tree()))
    with pytest.raises(TaskError, match=r"go on with run\.optimizer"):
        parameters.take(parameters.give())
    with pytest.raises(TaskError, match=r"islands\.join takes it"):
        joined(tree(), None).take(tree(), OPTIMIZER.init(tree()))
    jax.tree.map(lambda leaf: leaf.delete(), parameters.optimizer[0].mu)
    with pytest.raises(TaskError, match="0/mu/a of the optimizer's state was deleted"):
        given(parameters)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (lambda mu: mu.astype(jnp.bfloat16), r"bfloat16\[8\], and was float32\[8\]"),
        (lambda mu: mu[:4], r"float32\[4\], and was float32\[8\]"),
        (np.asarray, "a ndarray, and was"),
    ],
    ids=["dtype", "shape", "no array of JAX"],
)
def test_a_step_keeps_what_peers_were_told(changed: Callable[[Array], Any], told: str) -> None:
    """Else this learner would give them pieces of another size; what it held is as it was."""
    parameters = joined(tree(), OPTIMIZER.init(tree()))
    before = bits(parameters.optimizer)
    first, *rest = parameters.optimizer
    spoiled = first._replace(mu={**first.mu, "a": changed(first.mu["a"])})
    with pytest.raises(TaskError, match="0/mu/a of the optimizer's state is " + told):
        parameters.take(parameters.give(), (spoiled, *rest))
    assert bits(parameters.optimizer) == before
