"""A mixture of experts, by a loop over tokens in float64 and by what must not matter."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import Array, PyTree
from numpy.typing import NDArray

from islands.model.jax_trainer import JaxTrainer
from islands.protocol.errors import SettingsError
from islands.tasks.models.decoder import GatedFeedForward, MixtureOfExperts, balance
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.models.language import initial, nats, training_loss
from islands.tasks.stdlib_bytes import StdlibBytes

pytestmark = pytest.mark.usefixtures("quickly_compiled")

WIDTH, HIDDEN = 8, 12
X = np.random.default_rng(3).standard_normal((2, 5, WIDTH)).astype(np.float32)


loss_of = jax.jit(training_loss, static_argnums=0)
nats_of = jax.jit(nats, static_argnums=0)


def config(experts: int = 4, each: int = 2, **changes: object) -> DecoderConfig:
    """A small shape with experts."""
    shape = {"width": WIDTH, "hidden": HIDDEN, "heads": 2, "head_width": 4, "layers": 2}
    chosen = {"experts": experts, "experts_per_token": each}
    return DecoderConfig(**{**shape, **chosen, **changes})  # type: ignore[arg-type]


def awake(shape: DecoderConfig, seed: int = 1) -> PyTree:
    """Parameters of a mixture none of which is zero."""
    rng = np.random.default_rng(seed)
    _, state = nnx.split(MixtureOfExperts(shape, rngs=nnx.Rngs(0)))
    return jax.tree.map(
        lambda x: (np.asarray(x) + 0.5 * rng.standard_normal(x.shape)).astype(np.float32),
        nnx.to_pure_dict(state),
    )


@jax.jit
def _mixed(params: PyTree, each: Array, x: Array) -> tuple[Array, Array]:
    shape = config(params["router"].shape[1], each.size)
    graph, _ = nnx.split(nnx.eval_shape(lambda: MixtureOfExperts(shape, rngs=nnx.Rngs(0))))
    mixture: MixtureOfExperts = nnx.merge(graph, params)
    found: tuple[Array, Array] = mixture(x)
    return found


def mixed(params: PyTree, each: int) -> tuple[Array, Array]:
    """What the mixture makes of X, and its balance loss."""
    found: tuple[Array, Array] = _mixed(params, jnp.zeros(each), jnp.asarray(X))
    return found


def gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The tanh form, which Gemma uses."""
    gated: NDArray[np.float64] = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return x / 2 * (1 + gated)


def by_hand(params: PyTree, each: int) -> tuple[NDArray[np.float64], float]:
    """One token at a time in float64."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    experts = p["experts"]
    count = p["router"].shape[1]
    out, went, total = np.zeros((10, WIDTH)), np.zeros(count), np.zeros(count)
    for n, row in enumerate(X.reshape(10, WIDTH).astype(np.float64)):
        shares = np.exp(row @ p["router"])
        shares /= shares.sum()
        best = np.argsort(-shares)[:each]
        weights = shares[best] / (shares[best].sum() if each > 1 else 1)
        for weight, e in zip(weights, best, strict=True):
            inner = gelu(row @ experts["gate"][e]) * (row @ experts["up"][e])
            out[n] += weight * (inner @ experts["down"][e])
            went[e] += 1
        total += shares
    return out.reshape(X.shape), count * float(went / went.sum() @ (total / 10))


@pytest.mark.quick("3-3")
@pytest.mark.parametrize(("count", "each"), [(4, 1), (4, 2), (3, 3)])
def test_each_token_is_transformed_by_its_best_experts(count: int, each: int) -> None:
    """Outputs and balance loss agree with a loop over tokens in float64."""
    params = awake(config(count, each))
    found, loss = mixed(params, each)
    expected, expected_loss = by_hand(params, each)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)


def test_one_expert_is_the_dense_layer() -> None:
    """With the same matrices, and a router that has no choice."""
    params = awake(config(1, 1))
    graph, _ = nnx.split(nnx.eval_shape(lambda: GatedFeedForward(config(), rngs=nnx.Rngs(0))))
    dense: GatedFeedForward = nnx.merge(graph, {k: v[0] for k, v in params["experts"].items()})
    found, loss = mixed(params, 1)
    np.testing.assert_allclose(found, dense(jnp.asarray(X)), rtol=1e-4, atol=1e-5)
    assert loss == 1


def test_the_order_of_the_experts_does_not_matter() -> None:
    """Permuted with their columns of the router, they give the same."""
    params, order = awake(config(4, 2)), np.array([2, 0, 3, 1])
    permuted = {
        "router": params["router"][:, order],
        "experts": jax.tree.map(lambda x: x[order], params["experts"]),
    }
    for one, other in zip(mixed(params, 2), mixed(permuted, 2), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_the_balance_loss_is_least_at_uniform_routing() -> None:
    """It is 1 there, E where all tokens choose one expert, and falls along its gradient."""
    uniform, all_to_one = jnp.full((8, 4), 0.25), jnp.tile(jnp.eye(4)[0], (8, 1))
    np.testing.assert_allclose(balance(uniform, jnp.array([2, 2, 2, 2])), 1, rtol=1e-6)
    np.testing.assert_allclose(balance(all_to_one, jnp.array([8, 0, 0, 0])), 4, rtol=1e-6)
    skewed = jnp.tile(jnp.array([0.4, 0.3, 0.2, 0.1]), (8, 1))
    counts = jnp.array([5, 2, 1, 0])
    np.testing.assert_allclose(
        balance(skewed, counts), 4 * (5 * 0.4 + 2 * 0.3 + 0.2) / 8, rtol=1e-6
    )
    slope = jax.grad(lambda scores: balance(jax.nn.softmax(scores), counts))(jnp.log(skewed))
    assert np.all(slope[:, 0] > 0)
    assert np.all(slope[:, 3] < 0)


@pytest.mark.long("test_the_balance_loss_is_least_at_uniform_routing")
def test_the_balance_loss_is_trained_on_and_not_evaluated() -> None:
    """At the first step, nats are those of a uniform guess, and its share comes on top."""
    shape = config(4, 2, balance_weight=0.5, vocabulary=256)
    params = initial(shape, jax.random.key(0))
    tokens, weight = jnp.arange(12).reshape(2, 6), jnp.ones(2)
    plain = nats_of(shape, params, tokens, weight)
    added = loss_of(shape, params, tokens, weight) - plain
    assert 0.5 <= added < 0.5 * 4


def test_a_merge_cuts_experts_apart() -> None:
    """Each matrix of each expert of each layer is a unit, whether layers are stacked or not."""
    sizes = []
    for scan in (False, True):
        task = StdlibBytes(config(4, 2, width=32, hidden=64, scan=scan))
        layout = JaxTrainer(task, 2).layout
        sizes.append(sorted(u.size for fragment in layout.fragments for u in fragment.units))
    assert sizes[0] == sizes[1]
    assert sizes[0].count(32 * 64) == 3 * 4 * 2
    stacks = {leaf.path: leaf.stack for leaf in layout.leaves}
    assert stacks["layers/feed_forward/experts/up"] == 8
    assert stacks["layers/feed_forward/router"] == 2


@pytest.mark.long("test_one_expert_is_the_dense_layer")
def test_stacked_layers_route_as_separate_ones_do() -> None:
    """The loss and its balance agree from equal weights, recomputed or not."""
    plain, scanned = config(4, 2), config(4, 2, scan=True, remat=True)
    key, weight = jax.random.key(0), jnp.ones(2)
    tokens = jnp.arange(12).reshape(2, 6)
    losses = [loss_of(shape, initial(shape, key), tokens, weight) for shape in (plain, scanned)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    assert math.isfinite(losses[0])


@pytest.mark.parametrize("each", [0, 5])
def test_more_experts_per_token_than_there_are_are_refused(each: int) -> None:
    """With the numbers that are allowed."""
    with pytest.raises(SettingsError, match="it must be from 1 to the 4 experts"):
        config(4, each)


def test_hosts_must_agree_on_the_experts() -> None:
    """How many transform a token does not show in the shapes, so the label tells it."""
    assert config(4, 1).label != config(4, 2).label
    assert "experts" not in DecoderConfig().label
