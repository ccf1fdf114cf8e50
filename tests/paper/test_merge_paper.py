"""What Decoupled DiLoCo (arXiv 2604.21428) says of weights, merge and outer step, line by line.

Each test quotes a sentence of protocol §3, §4 or §12 and shows that the program does just that. [P]
is the paper, as digests and implementations report it; [O] is ours, a deviation or an addition that
must never be claimed for the paper; [M] was measured by us. The arithmetic is judged by hand values
or by the float64 oracle of `tests/numerics`, which shares no code with the program.
"""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf, Role, Unit
from islands.numerics.contributions import rebase, weight
from islands.numerics.merge import combine, merge_and_step
from islands.numerics.outer import DelayedNesterov, Sgd, merge_with, outer_optimizer
from islands.protocol.settings.choices import MergeRule
from islands.protocol.settings.outer import OuterSettings
from tests.numerics import oracle
from tests.numerics.oracle import AVERAGE, RDA

Flat = NDArray[np.float32]

RNG = np.random.default_rng(0)


def whole(size: int, rule: MergeRule = RDA) -> tuple[Unit, ...]:
    return (Unit(0, size, rule),)


def normal(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def norm(x: Flat) -> float:
    return float(np.linalg.norm(x.astype(np.float64)))


def ulp(x: Flat) -> Flat:
    """The spacing of float32 at |x|."""
    return np.spacing(np.abs(x))


def test_weight_is_tokens_squared_per_step() -> None:
    """[P] "weight: w = tokens²/steps"; protocol §12: 100 tokens in 10 steps weigh 1000.

    So twice the steps at the same batch count twice, and so does twice the batch on the same data.
    """
    assert weight(tokens=100, steps=10) == 1000
    assert weight(2 * 640, 2 * 10) == weight(640, 5) == 2 * weight(640, 10)


def test_rda_of_two_orthogonal_vectors_of_norm_two_has_norm_two() -> None:
    """[P] protocol §12: "RDA of two orthogonal vectors of norm 2: norm 2 (the average: √2)"."""
    x, y = np.array([2, 0], np.float32), np.array([0, 2], np.float32)
    assert norm(combine([x, y], [1.0, 1.0], whole(2))) == pytest.approx(2, rel=1e-6)
    plain = combine([x, y], [1.0, 1.0], whole(2, AVERAGE))
    assert norm(plain) == pytest.approx(np.sqrt(2), rel=1e-6)


def test_the_norm_is_the_weighted_mean_of_norms() -> None:
    """[P] "RDA = (Σ w‖δ‖ / Σ w) · …": norms 1 and 4 with weights 1 and 2 make 3."""
    x, y = np.array([1, 0], np.float32), np.array([3.2, 2.4], np.float32)
    assert norm(combine([x, y], [1.0, 2.0], whole(2))) == pytest.approx(3, rel=1e-6)


def test_the_direction_is_that_of_the_weighted_mean_direction() -> None:
    """[P] "… · φ(Σ w φ(δ) / Σ w)": lengths do not turn the merge, weights do."""
    x, y = np.array([5, 0], np.float32), np.array([0, 0.5], np.float32)
    merged = combine([x, y], [3.0, 4.0], whole(2))
    np.testing.assert_allclose(merged / norm(merged), [0.6, 0.8], rtol=1e-6)


def test_phi_of_zero_is_zero() -> None:
    """[P] "φ(x) = x/‖x‖, φ(0) = 0": an idle contribution halves the radius and does not turn."""
    x = np.array([3, 4], np.float32)
    merged = combine([x, np.zeros_like(x)], [1.0, 1.0], whole(2))
    np.testing.assert_allclose(merged, [1.5, 2.0], rtol=1e-6)


def test_where_the_cap_does_not_bind_the_rule_is_the_papers() -> None:
    """[P] Contributions that agree more than by chance are merged without our cap."""
    shared = normal(5000)
    deltas = [(shared + 0.5 * normal(5000)) * np.float32(i + 1) for i in range(6)]
    weights = [1.0, 2.0, 1.0, 3.0, 1.0, 2.0]
    wanted = oracle.rda_uncapped(deltas, weights)
    np.testing.assert_allclose(combine(deltas, weights, whole(5000)), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_disagreement_does_not_shrink_the_step(count: int) -> None:
    """[P] The reason for the rule: M unrelated contributions of one norm merge to that norm.

    Their average is shorter by √M. (Random directions are orthogonal only nearly, hence 1 %.)
    """
    deltas = list(normal(count, 20_000))
    radius = np.mean([norm(delta) for delta in deltas])
    directional = combine(deltas, [1.0] * count, whole(20_000))
    plain = combine(deltas, [1.0] * count, whole(20_000, AVERAGE))
    assert norm(directional) == pytest.approx(radius, rel=0.01)
    assert norm(plain) == pytest.approx(radius / np.sqrt(count), rel=0.01)


def test_embeddings_are_averaged_and_every_other_tensor_is_not() -> None:
    """[P] "embeddings by weighted average; every other tensor by radial-directional averaging"."""
    leaves = [
        Leaf("embedding", (32, 8), role=Role.EMBEDDING),
        Leaf("layer/weight", (16, 16), role=Role.MATRIX),
    ]
    (fragment,) = plan(leaves, count=1).fragments
    deltas = list(normal(3, fragment.size))
    weights = [1.0, 2.0, 5.0]
    merged = combine(deltas, weights, fragment.units(RDA))
    embedding = oracle.average([delta[:256] for delta in deltas], weights)
    matrix = oracle.rda([delta[256:] for delta in deltas], weights)
    np.testing.assert_allclose(merged[:256], embedding, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(merged[256:], matrix, rtol=1e-5, atol=1e-6)


# --- deviations from the paper, confessed -------------------------------------------------------


def test_deviation_one_contributor_is_the_identity() -> None:
    delta = normal(1000)
    delta[:3] = [-0.0, 1e-45, 3e38]
    assert combine([delta], [0.123], whole(1000)).tobytes() == delta.tobytes()


def test_deviation_the_norm_is_capped() -> None:
    weights = [1.0, 3.0, 1.0]
    root = sum(weights) / np.sqrt(sum(w * w for w in weights))
    deltas = list(normal(3, 500))
    deltas[1] = -(deltas[0] + deltas[2]) / 3 + np.float32(0.01) * normal(500)
    average = norm(combine(deltas, weights, whole(500, AVERAGE)))
    merged = norm(combine(deltas, weights, whole(500)))
    assert merged == pytest.approx(root * average, rel=1e-5)
    assert float(np.linalg.norm(oracle.rda_uncapped(deltas, weights))) > 5 * merged


def test_deviation_without_the_cap_single_elements_explode() -> None:
    """[M] "uncapped, 1-element tensors explode": the reason for the cap and the limit of 64.

    Two learners that almost cancel: the uncapped rule takes their full length with the sign of the
    heavier one; capped, a one-element tensor moves by at most √2 times the average.
    """
    x, y = np.array([1.0], np.float32), np.array([-0.9998], np.float32)
    weights = [1.0, 1.0001]
    average = abs(float(oracle.average([x, y], weights)[0]))
    assert abs(float(oracle.rda_uncapped([x, y], weights)[0])) > 10_000 * average
    assert abs(float(combine([x, y], weights, whole(1))[0])) <= 1.5 * average


@pytest.mark.parametrize(("size", "rule"), [(1, AVERAGE), (63, AVERAGE), (64, RDA)])
def test_deviation_small_tensors_are_averaged(size: int, rule: MergeRule) -> None:
    (fragment,) = plan([Leaf("scale", (size,))], count=1, min_piece_bytes=4).fragments
    assert [unit.rule for unit in fragment.units(RDA)] == [rule]


def test_anchor_current_is_the_current_value_minus_the_local_one() -> None:
    """[P] "Δ = Θ_now − local (the paper)"; with `base`, Δ is the contribution as sent."""
    base, local = np.array([8, 4], np.float32), np.array([6, 5], np.float32)
    current = np.array([7, 7], np.float32)
    sent = base - local
    assert sent.tolist() == [2, -1]
    assert rebase(sent, base, current).tolist() == (current - local).tolist()


def test_the_first_nesterov_step_from_rest_is_eta_times_one_plus_mu() -> None:
    """[P] protocol §12: η(1+μ)Δ; exact here, as all numbers are sums of few powers of two."""
    delta = np.array([8, -16, 0.5], np.float32)
    zero = np.zeros(3, np.float32)
    result = merge_and_step(
        zero, zero, [delta], [1.0], whole(3), learning_rate=0.5, momentum_decay=0.75
    )
    assert result.value.tolist() == (-0.5 * 1.75 * delta).tolist()
    assert Sgd.momentum_of(result.state).tolist() == delta.tolist()


def test_the_outer_step_is_sgd_with_nesterov_momentum() -> None:
    """[P] "v ← μv + Δ; Θ ← Θ − η(Δ + μv)", by hand over two steps, η = μ = 0.5.

    Δ = 4: v = 4, Θ = 0 − 0.5(4 + 2) = −3. Δ = 2: v = 4, Θ = −3 − 0.5(2 + 2) = −5.
    """
    value, momentum = np.zeros(1, np.float32), np.zeros(1, np.float32)
    seen = []
    for delta in (4, 2):
        contribution = np.array([delta], np.float32)
        result = merge_and_step(
            value, momentum, [contribution], [1.0], whole(1), learning_rate=0.5, momentum_decay=0.5
        )
        value, momentum = result.value, Sgd.momentum_of(result.state)
        seen.append((float(value[0]), float(momentum[0])))
    assert seen == [(-3, 4), (-5, 4)]


def test_by_default_the_merged_direction_is_taken_as_it_is() -> None:
    """[O] The paper's values are unpublished; the lineage's 0.7 and 0.9 swing under RDA [M]."""
    assert outer_optimizer(OuterSettings()) == Sgd() == Sgd(1.0, 0.0, nesterov=True)


def test_equal_weights_averaged_are_the_outer_step_of_diloco() -> None:
    """[P] DiLoCo, algorithm 1: the mean of M outer gradients, then Nesterov 0.7/0.9."""
    value, momentum = normal(300), np.zeros(300, np.float32)
    judge = oracle.Syncer(value.astype(float), momentum.astype(float), 0.7, 0.9)
    for _ in range(5):
        locals_ = [value + np.float32(0.1) * normal(300) for _ in range(4)]
        judge.step(np.mean([judge.value - one.astype(float) for one in locals_], axis=0))
        result = merge_and_step(
            value,
            momentum,
            [value - one for one in locals_],
            [weight(640, 10)] * 4,
            whole(300, AVERAGE),
            learning_rate=0.7,
            momentum_decay=0.9,
        )
        value, momentum = result.value, Sgd.momentum_of(result.state)
    np.testing.assert_allclose(value, judge.value, atol=1e-5)


def trained(start: Flat, steps: int) -> Flat:
    """Some inner training of a toy: SGD towards zero, in float32, unevenly fast."""
    local = start
    for step in range(steps):
        local = local - np.float32(0.01) * local * (
            1 + np.sin(np.arange(local.size) + step)
        ).astype(np.float32)
    return local


def test_one_learner_with_plain_outer_sgd_is_plain_training_to_an_ulp() -> None:
    """[O] protocol §12: "within 1 ulp of max(|base|, |local|) per outer step", over ten of them."""
    start = normal(10_000)
    value, momentum = start, np.zeros_like(start)
    for _ in range(10):
        local = trained(value, 24)
        result = merge_and_step(
            value,
            momentum,
            [value - local],
            [weight(100, 10)],
            whole(10_000),
            learning_rate=1.0,
            momentum_decay=0.0,
        )
        allowed = ulp(np.maximum(np.abs(value), np.abs(local)))
        assert (np.abs(result.value - local) <= allowed).all()
        value, momentum = result.value, Sgd.momentum_of(result.state)


def test_n_arrivals_one_by_one_make_the_first_nesterov_step() -> None:
    """[P] Asynchronous Local-SGD, c = 0: N equal arrivals from rest step η(1 + μ)Δ together."""
    optimizer = DelayedNesterov(0.5, 0.75, 4)
    delta, value = np.array([8, -16, 0.5], np.float32), np.zeros(3, np.float32)
    state = optimizer.init(value)
    for _ in range(4):
        step = merge_with(optimizer, value, state, [delta], [1.0], whole(3))
        value, state = step.value, step.state
    assert value.tolist() == (-0.5 * 1.75 * delta).tolist()


def test_any_order_merges_alike_and_the_same_order_to_the_bit() -> None:
    deltas = list(normal(4, 1000))
    weights = [1.0, 2.0, 3.0, 4.0]
    first = combine(deltas, weights, whole(1000))
    np.testing.assert_array_equal(first, combine(deltas, weights, whole(1000)))
    for order in itertools.permutations(range(4)):
        other = combine([deltas[i] for i in order], [weights[i] for i in order], whole(1000))
        np.testing.assert_allclose(other, first, rtol=1e-4, atol=1e-6)
