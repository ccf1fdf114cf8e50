"""Whether a contribution is admitted, and if not, why."""

from dataclasses import replace

import pytest

from islands.identities import Fate
from islands.syncer.fate import (
    NORM_SAMPLES_MIN,
    Check,
    NormGauge,
    Refusal,
    excessive,
    refusal,
)

GOOD = Check(schema_ok=True, digest_ok=True, finite=True, norm=1.0)


def judged(
    check: Check = GOOD,
    *,
    untrue: str | None = None,
    fenced: str | None = None,
    ticket_open: bool = True,
    stale: str | None = None,
) -> Refusal | None:
    """The verdict on a contribution that is good but for what a test changes."""
    return refusal(
        check,
        untrue=untrue,
        fenced=fenced,
        ticket_open=ticket_open,
        stale=stale,
    )


def test_a_good_contribution_is_admitted() -> None:
    """No check fails."""
    assert judged() is None


def test_ordinary_misfortune_is_no_strike() -> None:
    """Quarantined, late and stale contributions are refused without a further strike."""
    assert judged(fenced="quarantined") == Refusal(Fate.REJECTED, "quarantined", strike=False)
    assert judged(ticket_open=False) == Refusal(Fate.LATE, "the round has closed", strike=False)
    assert judged(stale="old") == Refusal(Fate.STALE, "old", strike=False)


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (replace(GOOD, schema_ok=False), "schema"),
        (replace(GOOD, digest_ok=False), "digest"),
        (replace(GOOD, finite=False, norm=float("nan")), "not finite"),
    ],
)
def test_a_damaged_payload_is_a_strike(check: Check, reason: str) -> None:
    """Wrong shape, wrong digest and values that are not finite count against the sender."""
    assert judged(check) == Refusal(Fate.REJECTED, reason, strike=True)


def test_what_cannot_be_true_is_a_strike() -> None:
    """Steps and tokens that were not done are told as such."""
    assert judged(untrue="0 steps") == Refusal(Fate.REJECTED, "0 steps", strike=True)


def test_the_first_failing_check_decides() -> None:
    """A late contribution is late, whatever else is wrong with it: no strike for an old answer."""
    broken = Check(schema_ok=False, digest_ok=False, finite=False, norm=0.0)
    verdict = judged(broken, ticket_open=False, stale="old")
    assert verdict is not None
    assert verdict.fate is Fate.LATE


def test_norms_are_judged_against_their_running_median() -> None:
    """Nothing is over the limit before 8 samples; then 1000 times the median is 100 times over."""
    gauge = NormGauge(limit=10.0)
    for _ in range(NORM_SAMPLES_MIN):
        assert gauge.excess(1000.0) == 0.0
    assert gauge.excess(9_000.0) == pytest.approx(0.9)
    assert gauge.excess(1_000_000.0) == pytest.approx(100.0)


def test_a_new_regime_becomes_the_median() -> None:
    """Every norm enters, so a change that stays is not refused for ever."""
    gauge = NormGauge(limit=10.0)
    for _ in range(64):
        gauge.excess(1.0)
    verdicts = [gauge.excess(50.0) for _ in range(64)]
    assert verdicts[0] > 1
    assert verdicts[-1] <= 1


def test_zero_norms_refuse_nothing() -> None:
    """Where nothing has moved yet, there is no scale to judge by."""
    gauge = NormGauge(limit=10.0)
    assert [gauge.excess(0.0) for _ in range(20)] == [0.0] * 20
    assert gauge.excess(1.0) == 0.0


def test_one_excess_is_refused_and_the_others_stay() -> None:
    """A minority above the limit is refused; the others are not scaled."""
    over, scales = excessive({"a": 0.5, "b": 100.0, "c": 0.9})
    assert over == ["b"]
    assert scales == {"a": 1.0, "c": 1.0}


def test_half_a_round_over_the_limit_is_clipped() -> None:
    """If half of a round exceeds the limit the regime has changed: scale down, refuse nobody."""
    over, scales = excessive({"a": 4.0, "b": 0.5})
    assert over == []
    assert scales == {"a": 0.25, "b": 1.0}
