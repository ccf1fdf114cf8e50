"""Merged directions that undo those before them are told, and chance is not."""

import random

import pytest

from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.timeouts import WARN_EVERY_S
from islands.protocol.syncer.watches import SWING_WINDOW, Swinging, SwingWatch
from islands.protocol.tape import round_entries
from tests.syncer.bench import opened, seeded


def heard(watch: SwingWatch, cosines: list[float], *, step_s: float = 100.0) -> list[Swinging]:
    """What a run hears of one fragment's merges, one after the other."""
    found = (watch.merged(0, cosine, at * step_s) for at, cosine in enumerate(cosines))
    return [swinging for swinging in found if swinging is not None]


def test_a_cosine_that_stays_negative_is_told_once() -> None:
    """After so many merges in a row; as long as it stays so, nothing is said again."""
    assert heard(SwingWatch(), [-0.2] * (SWING_WINDOW - 1)) == []
    told = heard(SwingWatch(), [-0.2] * 100)
    assert [swinging.fragments for swinging in told] == [1]
    assert told[0].cosine == pytest.approx(-0.2)


def test_it_is_over_once_directions_agree_again() -> None:
    """A single agreement is not yet the end; when the mean is back at 0, the run hears so."""
    watch = SwingWatch()
    (told,) = heard(watch, [-0.25] * SWING_WINDOW + [0.1, -0.25, 0.1])
    assert told == Swinging(1, -0.25)
    assert heard(watch, [0.3] * SWING_WINDOW) == []  # the clock of this list began anew: too early
    assert watch.merged(0, 0.3, 1e6) == Swinging(0, 0.0)
    assert watch.merged(0, 0.3, 2e6) is None


@pytest.mark.parametrize(
    "cosine", [0.0, -1e-9, -0.04, 0.3, 1.0], ids=["none", "dust", "small", "agreeing", "straight"]
)
def test_what_is_near_zero_or_above_is_not_told(cosine: float) -> None:
    """Rounding leaves cosines of either sign; another optimizer measures none."""
    assert heard(SwingWatch(), [cosine] * 200) == []


def test_one_merge_that_agrees_among_many_is_no_swing() -> None:
    """Steps that sometimes get somewhere do not swing for ever."""
    assert heard(SwingWatch(), ([-0.3] * (SWING_WINDOW - 1) + [0.1]) * 20) == []


def test_directions_without_relation_are_not_told() -> None:
    """The cosine of chance is about 1/128 for the smallest fragment a plan makes, of 64 KiB."""
    rng = random.Random(0)
    fragments = ([rng.gauss(0.0, 1 / 128) for _ in range(100)] for _ in range(1000))
    assert not any(heard(SwingWatch(), cosines) for cosines in fragments)


def test_many_fragments_are_told_together_at_most_once_a_minute() -> None:
    """Of 600 fragments that begin to swing within a minute a run hears twice, not 600 times."""
    watch = SwingWatch()
    told = [
        (at_s, swinging.fragments)
        for merge in range(2 * SWING_WINDOW)
        for fragment in range(600)
        for at_s in (60.0 * merge + fragment / 10,)
        for swinging in (watch.merged(fragment, -0.5, at_s),)
        if swinging is not None
    ]
    assert told == [(60.0 * (SWING_WINDOW - 1), 1), (60.0 * SWING_WINDOW, 600)]
    assert told[1][0] - told[0][0] >= WARN_EVERY_S


def entries_of(*names: str, contributions: int) -> list[round_entries.Swinging]:
    """What the tape says of merges that undo one another, of so many contributions each."""
    settings = RunSettings(interval_steps=4, fragments=1, quorum=contributions, overlap_steps=0)
    bench = seeded(*names, fragments=1, settings=settings)
    entries: list[round_entries.Swinging] = []
    for _ in range(2 * SWING_WINDOW):
        for pull in opened(bench)[:contributions]:
            bench.answer(pull)
        bench.merge(cosine=-0.3)
        entries += bench.entries(round_entries.Swinging)
        bench.journal()
        for name in names:
            bench.adopt(name)
    return entries


def test_merges_of_one_learner_each_are_no_swing() -> None:
    """Among several each goes from where the last one was to where this one is."""
    assert entries_of("ana", "ben", contributions=1) == []
    assert len(entries_of("ana", "ben", contributions=2)) == 1


def test_the_tape_says_what_to_set() -> None:
    """One entry, with how many fragments, how much, and the setting that would end it."""
    (entry,) = entries_of("ana", contributions=1)
    assert entry.fragments == entry.of == 1
    assert entry.cosine == pytest.approx(-0.3)
    assert "set outer.learning_rate to 0.5 or less" in entry.told
