"""When the values of old versions are freed, and when they stay."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate, LearnerName, Phase, Role, Status, Version
from islands.protocol.settings.run import Anchor, MergeRule, RunSettings, UpdatePrecision
from islands.protocol.syncer.actions import BeginMerge, ReleaseValues, SendValue
from islands.protocol.syncer.events import IncrementFacts, ProgressArrived
from tests.syncer.bench import Bench, opened, seeded
from tests.syncer.test_observers import CONNECTION, observe

SETTINGS = RunSettings(interval_steps=4, fragments=1, quorum=None)
INCREMENT = IncrementFacts(10, 1000, 0.0)


def merged(bench: Bench, increment: IncrementFacts | None = None) -> Version:
    """A round until its quorum, durable and sent to all; the version that it made."""
    for pull in opened(bench):
        bench.answer(pull)
        if bench.of(BeginMerge):
            break
    made = bench.merge(increment=increment).target
    bench.journal()
    return made


def released(bench: Bench) -> list[tuple[int, Version]]:
    """What the last event freed: fragments, and the versions from which on values stay."""
    return [(action.fragment, action.version) for action in bench.of(ReleaseValues)]


def test_old_values_are_freed_once_everybody_has_adopted() -> None:
    """With the report of the last one; nobody can contribute from them any more."""
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    newest = merged(bench)
    bench.adopt("ana")
    assert released(bench) == []
    assert len(bench.core.versions.kept[0]) == 2
    bench.adopt("ben")
    assert released(bench) == [(0, newest)]
    assert list(bench.core.versions.kept[0]) == [newest]
    bench.report("ben")
    assert released(bench) == []


def test_who_is_behind_contributes_as_before() -> None:
    """One that has not adopted is asked for the next round, and what it has done is merged."""
    settings = replace(SETTINGS, quorum=1)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    of_ana = next(pull for pull in opened(bench) if pull.ticket.name == "ana")
    bench.answer(of_ana)
    bench.merge()
    bench.journal()
    bench.adopt("ana")
    assert released(bench) == []
    of_ben = next(pull for pull in opened(bench) if pull.ticket.name == "ben")
    bench.answer(of_ben)
    bench.tick(0.5)
    (begun,) = bench.of(BeginMerge)
    assert [part.base for part in begun.parts] == [Version(1, 0)]
    assert begun.current == Version(1, 1)


def test_nothing_is_freed_while_a_round_is_open() -> None:
    """An answer may be on its way that was made before its sender adopted."""
    settings = replace(SETTINGS, quorum=1)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    merged(bench)
    bench.adopt("ana")
    pulls = opened(bench)
    assert {pull.ticket.name for pull in pulls} == {"ana", "ben"}
    of_ben = next(pull for pull in pulls if pull.ticket.name == "ben")
    answer = bench.contribution(of_ben)
    bench.adopt("ben")
    assert released(bench) == []
    assert answer.base in bench.core.versions.kept[0]


def test_who_was_evicted_comes_back_with_its_work() -> None:
    """Its process has held on to its base, under whatever incarnation it contributes."""
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    bench.view("ben", Status.EVICTED)
    newest = merged(bench)
    bench.adopt("ana")
    assert released(bench) == []
    bench.hello("ben", counter=2)
    ben = bench.learners["ben"]
    ben.phase, ben.versions[0] = Phase.STEPPING, Version(1, 0)
    bench.report("ben")
    assert released(bench) == []
    bench.journal()
    bench.step("ben")
    assert bench.core.ineligible(LearnerName("ben"), 0) is None
    bench.adopt("ben")
    assert released(bench) == [(0, newest)]


def test_who_never_comes_back_costs_memory_for_a_while_only() -> None:
    """Once its base is too old to be kept, it delays nothing."""
    bench = seeded("ana", "ben", settings=replace(SETTINGS, staleness_max=2), fragments=1)
    bench.view("ben", Status.EVICTED)
    found: list[bool] = []
    for _ in range(4):
        merged(bench)
        bench.adopt("ana")
        found.append(bool(released(bench)))
    assert found == [False, False, True, True]


def test_a_learner_that_left_from_the_newest_version_delays_nothing() -> None:
    """Its successor could contribute from that one alone."""
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    newest = merged(bench)
    bench.adopt("ben")
    bench.view("ben", Status.EVICTED)
    assert released(bench) == []
    bench.adopt("ana")
    assert released(bench) == [(0, newest)]


def test_a_restarted_syncer_waits_for_those_in_its_books() -> None:
    """Who has not said hello yet may hold the version of the journal."""
    first = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    bench = Bench(SETTINGS, fragments=1, durable=first.core.durable, epoch=2)
    bench.learners = {"ana": first.learners["ana"]}
    bench.hello("ana")
    newest = merged(bench)
    bench.adopt("ana")
    assert released(bench) == []
    bench.learners["ben"] = first.learners["ben"]
    bench.hello("ben")
    assert Version(1, 0) in bench.core.versions.kept[0]
    bench.adopt("ben")
    assert released(bench) == [(0, newest)]


def test_a_sweep_frees_what_no_report_did() -> None:
    """Such as when the one that was behind is gone, with a base that is not kept."""
    bench = seeded("ana", "ben", settings=SETTINGS, fragments=1)
    newest = merged(bench)
    bench.adopt("ana")
    bench.learners["ben"].adopt(0, newest, 0)
    bench.drop("ben")
    bench.hello("ben", counter=2)
    bench.learners["ben"].versions[0] = newest
    bench.report("ben")
    bench.tick(60.0)
    assert list(bench.core.versions.kept[0]) == [newest]


def test_bases_are_admitted_without_values_where_the_anchor_is_the_base() -> None:
    """Contributions are taken as they are then, so only the values go."""
    settings = replace(SETTINGS, anchor=Anchor.BASE, merge=MergeRule.AVERAGE)
    bench = seeded("ana", settings=settings, fragments=1)
    newest = merged(bench)
    bench.adopt("ana")
    assert released(bench) == [(0, newest)]
    assert list(bench.core.versions.kept[0]) == [Version(1, 0), newest]


@pytest.mark.parametrize("precision", [UpdatePrecision.FLOAT32, UpdatePrecision.INT8])
def test_observers_count_where_updates_are_increments(precision: UpdatePrecision) -> None:
    """An increment leads on from what they hold; a whole value does not."""
    bench = seeded("ana", settings=replace(SETTINGS, update_precision=precision), fragments=1)
    observe(bench, "reader")
    reader = replace(bench.core.members.learners[LearnerName("reader")].progress)
    one = bench.core.members.learners[LearnerName("ana")].progress.fragments
    bench.do(ProgressArrived(replace(reader, fragments=one), CONNECTION))
    newest = merged(bench, INCREMENT if precision.of_increments else None)
    bench.adopt("ana")
    assert bool(released(bench)) is not precision.of_increments
    assert bench.core.members.learners[LearnerName("reader")].role is Role.OBSERVER
    now = bench.core.members.learners[LearnerName("ana")].progress.fragments
    bench.do(ProgressArrived(replace(reader, fragments=now), CONNECTION))
    assert list(bench.core.versions.kept[0]) == [newest]


def test_who_comes_back_after_increments_were_freed_gets_the_value() -> None:
    """No chain leads on from what nobody is known to hold."""
    settings = replace(SETTINGS, update_precision=UpdatePrecision.INT8, staleness_max=0)
    bench = seeded("ana", "ben", settings=settings, fragments=1)
    bench.view("ben", Status.EVICTED)
    newest = merged(bench, INCREMENT)
    assert [a.message.since is not None for a in bench.of(SendValue)] == [True]
    bench.adopt("ana")
    assert released(bench) == [(0, newest)]
    bench.hello("ben", counter=2)
    ben = bench.learners["ben"]
    ben.phase, ben.versions[0] = Phase.STEPPING, Version(1, 0)
    bench.report("ben")
    bench.tick(60.0)
    assert [a.message.since for a in bench.of(SendValue)] == [None]
    assert Fate.APPLIED not in [fate for fate, _ in bench.fates()]
