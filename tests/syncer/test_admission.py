"""Whether a contribution is admitted, and if not, why."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate
from islands.protocol.syncer.admission import Refusal, refusal
from islands.protocol.syncer.plausibility import (
    LATELY,
    NORM_LEARNERS_KEPT,
    NORM_SAMPLES_MIN,
    Check,
    Judgement,
    NormGauge,
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


def gauge(**learners: float) -> NormGauge:
    """One by which each of these learners had many norms of this size merged."""
    made = NormGauge(limit=10.0)
    for _ in range(NORM_SAMPLES_MIN):
        for name, rate in learners.items():
            made.merged(name, rate)
    return made


def test_nothing_is_refused_or_clipped_before_a_few_were_merged() -> None:
    """Then 1000 times the usual is 100 times over."""
    made = NormGauge(limit=10.0)
    for index in range(NORM_SAMPLES_MIN):
        assert made.judge({"a": 1.0, "b": 1.0, "c": 1e6}).refused == {}
        made.merged("abc"[index % 3], 1.0)
    judged = made.judge({"a": 9.0, "b": 1.0, "c": 1000.0})
    assert judged == Judgement({"c": 100.0}, {"a": 1.0, "b": 1.0})


def test_one_of_two_is_refused() -> None:
    """It was clipped, never struck, and entered the median until it passed whole."""
    made = gauge(a=1.0, b=1.0)
    for _ in range(100):
        judged = made.judge({"a": 1.0, "b": 1000.0})
        assert (list(judged.refused), judged.scales) == (["b"], {"a": 1.0})
        made.merged("a", 1.0)
    assert made.usual == 1.0


def test_a_liar_that_is_alone_in_its_round_is_refused() -> None:
    """With K = 1 most rounds have one contribution: what others sent lately counts as well."""
    made = gauge(a=1.0, b=1.0, c=1.0)
    for name in "ab":
        assert not made.judge({name: 1.0}).refused
    for _ in range(3):
        assert list(made.judge({"c": 1000.0}).refused) == ["c"]


def test_one_that_is_alone_in_its_round_and_somewhat_too_long_is_clipped() -> None:
    """Its base may be several outer steps old; from the limit's square on it is refused."""
    made = gauge(a=1.0, b=1.0, c=1.0)
    for name in "ab":
        made.judge({name: 1.0})
    for rate, scale in ((10.0, 1.0), (20.0, 0.5), (100.0, 0.1)):
        assert made.judge({"c": rate}) == Judgement({}, {"c": scale})
    assert made.judge({"c": 101.0}).refused == pytest.approx({"c": 10.1})


def test_clipped_alone_a_learner_keeps_one_voice() -> None:
    """Whoever is clipped again and again stays clipped to what was usual before."""
    made = gauge(a=1.0, b=1.0, c=1.0)
    for _ in range(100):
        for name, rate in (("a", 1.0), ("b", 1.0), ("c", 50.0)):
            scale = made.judge({name: rate}).scales[name]
            assert scale * rate == pytest.approx(10.0 if name == "c" else 1.0)
            made.merged(name, scale * rate)
    assert made.usual == 1.0


def test_who_answers_often_has_one_voice() -> None:
    """A flood of small norms of one learner does not make those of the others too large."""
    made = gauge(a=1.0, b=1.0, c=1.0)
    for _ in range(1000):
        made.merged("c", 1e-9)
    assert made.usual == 1.0
    assert made.judge({"a": 1.0, "b": 1.0}).refused == {}


def test_a_norm_that_grows_slowly_moves_nothing_from_three_learners_on() -> None:
    """Each time within the limit of what it had merged before: the others' median stays."""
    made = gauge(a=1.0, b=1.0, c=1.0)
    rate, refused = 1.0, False
    for _ in range(20):
        rate *= 5
        judged = made.judge({"a": 1.0, "b": 1.0, "c": rate})
        refused = "c" in judged.refused
        for name, scale in judged.scales.items():
            made.merged(name, scale * (rate if name == "c" else 1.0))
    assert refused
    assert made.usual == 1.0


def test_a_new_regime_is_clipped_and_becomes_usual() -> None:
    """More than half exceed: all are scaled to the limit, nobody is struck, until they pass."""
    made = gauge(a=1.0, b=1.0, c=1.0)
    judged = made.judge(dict.fromkeys("abc", 50.0))
    assert judged == Judgement({}, dict.fromkeys("abc", 0.2))
    for _ in range(64):
        judged = made.judge(dict.fromkeys("abc", 50.0))
        for name, scale in judged.scales.items():
            made.merged(name, 50.0 * scale)
    assert judged.scales == dict.fromkeys("abc", 1.0)


def test_a_regime_changes_for_one_learner_alone_too() -> None:
    """When the others have gone, what they sent long ago does not count as another voice."""
    made = gauge(a=1.0, b=1.0, c=1.0)
    for name in "bc":
        made.judge({name: 1.0})
    for _ in range(LATELY):
        made.judge({"a": 1.0})
    assert made.judge({"a": 50.0}).refused == {}


def test_zero_norms_refuse_nothing() -> None:
    """Where nothing has moved yet, there is no scale to judge by."""
    assert gauge(a=0.0, b=0.0).judge({"a": 1.0, "b": 0.0}).refused == {}


def test_one_excess_is_refused_and_the_others_stay() -> None:
    """A minority above the limit is refused; the others are not scaled."""
    judged = gauge(a=1.0, b=1.0, c=1.0).judge({"a": 0.5, "b": 1000.0, "c": 9.0})
    assert list(judged.refused) == ["b"]
    assert judged.scales == {"a": 1.0, "c": 1.0}


def test_what_is_known_of_learners_is_bounded() -> None:
    """Names come and go for weeks."""
    made = NormGauge(limit=10.0)
    for number in range(10_000):
        made.judge({f"n{number}": 1.0})
        made.merged(f"n{number}", 1.0)
    assert made.known == (NORM_LEARNERS_KEPT, LATELY)
