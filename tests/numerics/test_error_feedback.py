"""What a codec loses is sent later, exactly once, whatever becomes of each contribution."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.numerics.codecs import QUANTIZERS, decode
from islands.numerics.error_feedback import OPEN_MAX, ErrorFeedback
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Adoption, Precision
from islands.protocol.settings.run import RunSettings
from messaging.codec.tensors import as_buffer

SIZE = 300
LOSSY = (Precision.INT8, Precision.FP4, Precision.TWO_BIT, Precision.TOP_K)
FATES = st.lists(st.sampled_from(["applied", "late", "lost"]), min_size=1, max_size=12)
Double = NDArray[np.float64]


def contribution(number: int) -> NDArray[np.float32]:
    return np.random.default_rng(number).standard_normal(SIZE).astype(np.float32)


def send(feedback: ErrorFeedback, number: int, precision: Precision) -> Double:
    """Encode the contribution to a round; return what arrives."""
    payload = feedback.encoded(0, (1, number), as_buffer(contribution(number)), precision)
    return decode(payload, SIZE, precision).astype(np.float64)


def kept(feedback: ErrorFeedback) -> Double:
    residual = feedback.residual(0)
    return np.zeros(SIZE) if residual is None else residual.astype(np.float64)


@pytest.mark.parametrize("precision", LOSSY)
@given(fates=FATES)
def test_the_residual_follows_the_fates(precision: Precision, fates: list[str]) -> None:
    """Round by round in float64: it becomes what was lost of what was applied, else it stays.

    Late: an update tells that the round passed without it. Lost: nothing ever tells.
    """
    feedback, residual = ErrorFeedback(precision, keeps=True), np.zeros(SIZE)
    for number, fate in enumerate(fates):
        sent = send(feedback, number, precision)
        wanted = contribution(number) + residual
        assert np.linalg.norm(sent - wanted) < np.linalg.norm(wanted)
        if fate == "applied":
            residual = wanted - sent
            feedback.settle(0, (1, number), (1, number))
        elif fate == "late":
            feedback.settle(0, (1, number), None)
        np.testing.assert_allclose(kept(feedback), residual, atol=1e-5)


@given(
    applied=st.lists(st.booleans(), min_size=2, max_size=8),
    drawn=st.lists(st.sampled_from(list(QUANTIZERS)), min_size=9, max_size=9),
)
def test_nothing_is_sent_twice_or_never_whatever_the_precision_of_each(
    applied: list[bool], drawn: list[Precision]
) -> None:
    feedback, arrived, made = ErrorFeedback(drawn[0], keeps=True), np.zeros(SIZE), np.zeros(SIZE)
    sent = {0: send(feedback, 0, drawn[0])}
    for number, merged in enumerate(applied):
        sent[number + 1] = send(feedback, number + 1, drawn[number + 1])
        if merged:
            arrived += sent[number]
            made += contribution(number)
        feedback.settle(0, (1, number), (1, number) if merged else None)
        np.testing.assert_allclose(arrived + kept(feedback), made, atol=1e-4)


def test_an_update_that_comes_again_changes_nothing() -> None:
    feedback = ErrorFeedback(Precision.FP4, keeps=True)
    send(feedback, 1, Precision.FP4)
    feedback.settle(0, (1, 1), (1, 1))
    before = kept(feedback)
    assert before.any()
    feedback.settle(0, (1, 2), (1, 1))
    np.testing.assert_array_equal(kept(feedback), before)


def test_a_new_epoch_decides_what_is_older() -> None:
    feedback = ErrorFeedback(Precision.FP4, keeps=True)
    send(feedback, 7, Precision.FP4)
    feedback.settle(0, (2, 1), None)
    feedback.settle(0, (2, 2), (1, 7))
    assert not kept(feedback).any()


def test_losses_are_kept_of_few_contributions() -> None:
    feedback = ErrorFeedback(Precision.INT8, keeps=True)
    for number in range(OPEN_MAX + 1):
        send(feedback, number, Precision.INT8)
    feedback.settle(0, (0, 0), (1, 0))
    assert not kept(feedback).any()
    feedback.settle(0, (0, 0), (1, OPEN_MAX))
    assert kept(feedback).any()


def test_who_starts_over_keeps_nothing() -> None:
    feedback = ErrorFeedback(Precision.TWO_BIT, keeps=True)
    for number in (1, 2):
        send(feedback, number, Precision.TWO_BIT)
    feedback.settle(0, (1, 1), (1, 1))
    feedback.reset()
    feedback.settle(0, (1, 2), (1, 2))
    assert not kept(feedback).any()


def test_without_feedback_contributions_are_only_encoded() -> None:
    feedback = ErrorFeedback(Precision.FP4, keeps=False)
    once, again = (send(feedback, 1, Precision.FP4) for _ in range(2))
    feedback.settle(0, (1, 1), (1, 1))
    np.testing.assert_array_equal(once, again)
    assert feedback.residual(0) is None


def test_what_is_not_finite_is_never_kept() -> None:
    """It is sent, so that it is refused, and leaves no trace."""
    feedback, broken = ErrorFeedback(Precision.FP4, keeps=True), contribution(1)
    broken[5] = np.inf
    payload = feedback.encoded(0, (1, 1), as_buffer(broken))
    assert np.isnan(decode(payload, SIZE, Precision.FP4)).any()
    feedback.settle(0, (1, 1), None)
    assert np.isfinite(send(feedback, 2, Precision.FP4)).all()


@pytest.mark.parametrize("adoption", [Adoption.OVERWRITE, Adoption.DELAY_CORRECTED])
def test_a_sparse_contribution_goes_with_what_keeps_the_rest(adoption: Adoption) -> None:
    assert RunSettings(precision=Precision.TOP_K, adoption=adoption).feeds_back


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"error_feedback": False}, "and error_feedback is false, so what is not among"),
        ({"adoption": Adoption.MIX}, "and adoption is mix, .* use overwrite or delay_corrected"),
    ],
)
def test_a_sparse_contribution_is_refused_where_the_rest_is_lost(
    changes: dict[str, object], why: str
) -> None:
    """Else most of the work would never be sent."""
    with pytest.raises(SettingsError, match=f"precision is top_k, {why}"):
        RunSettings(precision=Precision.TOP_K, **changes)  # type: ignore[arg-type]
