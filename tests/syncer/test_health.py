"""Merged directions that undo those before them are told, and chance is not.

A run in which nobody gets anywhere from the published values ends, and says why.

When the run hears that the syncer's own workers are what rounds wait for.
"""

import random

import pytest

from islands.protocol.handlers import Received
from islands.protocol.identities import Incarnation, LearnerName, Status
from islands.protocol.messages.membership import Leave
from islands.protocol.settings.run import WELL_STEPS, RunSettings
from islands.protocol.syncer.health import (
    DIVERGED,
    DIVERGED_MAX,
    FULL_SHARE,
    INSPECTING,
    MERGING,
    SWING_WINDOW,
    WINDOW_S,
    WRITING,
    Busy,
    Divergences,
    LoadWatch,
    Overload,
    Swinging,
    SwingWatch,
    end_reason,
)
from islands.protocol.syncer.timeouts import WARN_EVERY_S
from islands.protocol.tape import round_entries
from islands.run.run_end import RunEnd
from tests.syncer.bench import Bench, opened, seeded


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


SETTINGS = RunSettings(interval_steps=40, fragments=2, learning_rate=0.5)


def diverge(bench: Bench, name: str, *, again: bool = True) -> None:
    """The loss of a learner is not finite; it comes back under its next incarnation."""
    learner = bench.learners[name]
    bench.do(Received(Leave(learner.name, learner.incarnation, "not finite", diverged=True), 0))
    if again:
        bench.hello(name, counter=learner.incarnation.counter + 10)
        bench.adopt(name)
        bench.step(name)


def reason_of(bench: Bench) -> str | None:
    """Why the run is ending, if it is."""
    return None if bench.core.closing is None else bench.core.closing.reason


def test_a_run_in_which_everybody_diverges_again_and_again_ends() -> None:
    """With a sentence that says what to change, and with the end of any other run."""
    bench = seeded("ana", "ben", settings=SETTINGS)
    for _ in range(DIVERGED_MAX):
        assert reason_of(bench) is None
        diverge(bench, "ana")
        diverge(bench, "ben")
    assert reason_of(bench) == end_reason(SETTINGS)
    assert end_reason(SETTINGS).startswith(DIVERGED)
    assert "run.learning_rate (now 0.5)" in end_reason(SETTINGS)


def test_one_learner_that_diverges_ends_nobody_elses_run() -> None:
    """Its device may be broken; the others train, or are about to."""
    bench = seeded("ana", "ben", settings=SETTINGS)
    for _ in range(4 * DIVERGED_MAX):
        diverge(bench, "ana")
    assert reason_of(bench) is None


def test_who_was_killed_a_moment_ago_is_waited_for() -> None:
    """It trained well when it was here; only after as long as a compilation is it forgotten."""
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.step("ben")
    bench.drop("ben")
    for _ in range(2 * DIVERGED_MAX):
        diverge(bench, "ana")
    bench.tick(SETTINGS.timing.compile_s)
    diverge(bench, "ana")
    assert reason_of(bench) is None
    bench.view("ben", Status.EVICTED)
    diverge(bench, "ana")
    assert reason_of(bench) == end_reason(SETTINGS)


def test_a_restarted_syncer_waits_for_all_who_have_accounts() -> None:
    """One whose device is broken may dial first; it decides nothing for the others."""
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.step("ben")
    again = Bench(SETTINGS, durable=bench.core.durable, epoch=2)
    again.learners["ana"] = bench.learners["ana"]
    again.hello("ana")
    for _ in range(2 * DIVERGED_MAX):
        diverge(again, "ana")
    assert "ben" not in again.core.members.learners
    assert reason_of(again) is None


def test_an_old_word_of_leaving_ends_no_streak() -> None:
    """A link may deliver it late: the learner is back since, and diverges."""
    bench = seeded("ana", settings=SETTINGS)
    ana = bench.learners["ana"]
    gone = Leave(ana.name, ana.incarnation, "drained")
    for _ in range(DIVERGED_MAX):
        assert reason_of(bench) is None
        diverge(bench, "ana")
        bench.do(Received(gone, 0))
    assert reason_of(bench) == end_reason(SETTINGS)


def test_who_left_is_not_waited_for() -> None:
    """It will not come back to show that the run can be trained."""
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.step("ben")
    ben = bench.learners["ben"]
    bench.do(Received(Leave(ben.name, ben.incarnation, "drained"), 0))
    for _ in range(DIVERGED_MAX):
        diverge(bench, "ana")
    assert reason_of(bench) == end_reason(SETTINGS)


@pytest.mark.parametrize(
    ("interval_steps", "steps", "ends"),
    [
        (1, WELL_STEPS, False),
        (1, WELL_STEPS - 1, True),
        (500, 500, False),
        (500, 499, True),
    ],
)
def test_steps_that_go_well_end_a_streak(interval_steps: int, steps: int, *, ends: bool) -> None:
    """As many as show that training is possible: a hundred, or an interval if that is longer."""
    settings = RunSettings(interval_steps=interval_steps)
    watch, ana = Divergences(), LearnerName("ana")
    for counter in range(DIVERGED_MAX):
        if counter == DIVERGED_MAX - 1:
            watch.heard(ana, steps, 1.0, settings)
        watch.diverged(ana, Incarnation(1, counter), 1.0, settings)
    assert watch.of_everyone([ana]) is ends
    assert not watch.of_everyone([ana, LearnerName("ben")])


def test_a_word_that_comes_twice_counts_once() -> None:
    """A link may deliver it again, also long after its incarnation was replaced."""
    watch, ana = Divergences(), LearnerName("ana")
    told = [watch.diverged(ana, Incarnation(1, counter), 0.0, SETTINGS) for counter in (2, 2, 1, 5)]
    assert told == [1, 1, 1, 2]


def test_names_that_come_and_go_are_not_kept() -> None:
    """Only who was heard lately is remembered, however many there were."""
    watch = Divergences()
    for index in range(10_000):
        watch.heard(LearnerName(f"n{index}"), 1, 60.0 * index, SETTINGS)
    assert len(watch.streaks) == SETTINGS.timing.compile_s / 60


def test_who_diverged_goes_on_under_its_next_incarnation() -> None:
    """The accounts of the last one are closed, and it may contribute again."""
    bench = seeded("ana", "ben", settings=SETTINGS)
    diverge(bench, "ana")
    assert bench.core.members.learners[LearnerName("ana")].incarnation == Incarnation(1, 11)


def test_a_command_says_that_such_a_run_must_be_mended() -> None:
    """Its exit code is that of a user's mistake: who started it need not start it again."""
    assert RunEnd(end_reason(SETTINGS)).exit_code == 2
    assert RunEnd("tokens").exit_code == RunEnd().exit_code == 0


class Workers:
    """A watch that is asked every second."""

    def __init__(self, places: int = 1) -> None:
        self.watch = LoadWatch()
        self.watch.merged()
        self.places = places
        self.now_s = 0.0
        self.rounds = 0
        self.busy_s = {INSPECTING: 0.0, MERGING: 0.0, WRITING: 0.0}

    def live(
        self, for_s: float, shares: dict[str, float], left_out: int = 0, rounds: int = 1
    ) -> list[tuple[float, Overload]]:
        """So long with these busy shares, and rounds each second of which the last lacks some."""
        told: list[tuple[float, Overload]] = []
        for _ in range(round(for_s)):
            self.now_s += 1.0
            for _ in range(rounds):
                self.rounds += 1
                self.watch.opened(self.rounds, held_up=0)
            self.watch.lacks(self.rounds, left_out)
            for name, share in shares.items():
                places = self.places if name == INSPECTING else 1
                self.busy_s[name] += share * places
            busy = {
                name: Busy(busy_s, self.places if name == INSPECTING else 1, 7)
                for name, busy_s in self.busy_s.items()
            }
            found = self.watch.look(busy, self.now_s)
            if found is not None:
                told.append((self.now_s, found))
        return told


def test_a_run_that_keeps_up_hears_nothing() -> None:
    """Neither of workers that are nearly full, nor of a contribution that came a little late."""
    bench = Workers(places=4)
    assert bench.live(1000.0, dict.fromkeys(bench.busy_s, FULL_SHARE - 0.01)) == []
    assert bench.live(1000.0, {INSPECTING: 0.3}, left_out=1) == []
    assert bench.live(1000.0, {INSPECTING: 0.8}, left_out=1, rounds=2) == []


def test_a_worker_that_is_full_is_told_with_what_it_costs() -> None:
    """When it becomes full, again every minute, and once when it keeps up again."""
    bench = Workers(places=4)
    assert bench.live(WINDOW_S, dict.fromkeys(bench.busy_s, 0.1)) == []
    told = bench.live(100.0, {INSPECTING: 0.97, MERGING: 0.2, WRITING: 0.4}, left_out=3)
    assert [at_s for at_s, _ in told] == [21.0, 21.0 + WARN_EVERY_S]
    first = told[0][1]
    assert (first.worker, round(first.share, 2), first.waiting) == (INSPECTING, 0.97, 7)
    assert first.sentence.startswith("the syncer's worker for inspecting is 97% busy, and ")
    assert (
        f"{first.rounds} rounds lacked {first.left_out} contributions because of it"
        in first.sentence
    )
    assert told[1][1].left_out == 3 * WARN_EVERY_S
    (over,) = bench.live(100.0, dict.fromkeys(bench.busy_s, 0.1))
    assert (over[1].worker, over[1].sentence) == ("", "the syncer keeps up again")


def test_rounds_that_lack_contributions_speak_for_half_a_load() -> None:
    """Contributions come in bursts, and a worker may be full when it matters and idle between."""
    bench = Workers()
    told = bench.live(30.0, {INSPECTING: 0.6}, left_out=1)
    assert [overload.worker for _, overload in told] == [INSPECTING]


def test_what_a_run_is_not_told_takes_no_memory() -> None:
    """Rounds that lacked something now and then, for as long as no worker is full, are counted."""
    bench = Workers(places=4)
    bench.live(100.0, {INSPECTING: 0.3}, left_out=1)
    sizes = len(repr(bench.watch))
    assert bench.live(3000.0, {INSPECTING: 0.3}, left_out=1) == []
    assert len(repr(bench.watch)) < 1.5 * sizes


def test_a_full_journal_or_merge_is_named() -> None:
    """Nothing is left out then; what suffers is when versions are published."""
    for name in (MERGING, WRITING):
        ((_, overload),) = Workers().live(30.0, {INSPECTING: 0.2, name: 1.0})
        assert overload.worker == name
        assert "versions are published late" in overload.sentence


def test_no_worker_is_full_before_the_first_merge_is_complete() -> None:
    """Until then it compiles its kernels, or reads the journal: nobody waits for it longer."""
    bench = Workers()
    bench.watch = LoadWatch()
    assert bench.live(60.0, {MERGING: 1.0}, left_out=1) == []
    bench.watch.merged()
    assert bench.live(2 * WINDOW_S, {MERGING: 0.2}) == [], "and none of it counts afterwards"
    assert [found.worker for _, found in bench.live(2 * WINDOW_S, {MERGING: 1.0})] == [MERGING]
