"""Rounds that learners open: whom they ask, and who gets their values."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Fate, FragmentIndex, Phase, Status, Version
from islands.protocol.messages.membership import MembershipChanged
from islands.protocol.messages.training import PullFragment
from islands.protocol.sessions import Received
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import ReleaseValues
from islands.protocol.syncer.plausibility import Check
from islands.protocol.tape.round_entries import Abandoned, Opened
from tests.syncer.bench import Bench, seeded

SETTINGS = replace(PRESETS[Preset.ASYNC_DILOCO], interval_steps=4)
FIRST = FragmentIndex(0)


def made(*names: str, settings: RunSettings = SETTINGS) -> Bench:
    return seeded(*names, settings=settings, fragments=1)


def ask(bench: Bench, name: str, steps: int = 4) -> list[PullFragment]:
    """A learner does its steps and asks for a round; returns the pulls that follow."""
    learner = bench.learners[name]
    learner.steps += steps
    report = replace(learner.progress(), due=(FIRST,))
    bench.do(Received(report, bench.connections[name]))
    return bench.pulls()


def exchange(bench: Bench, pull: PullFragment) -> list[str]:
    """A pull is answered, merged and committed; returns who gets the value."""
    bench.commit([pull])
    return bench.receivers(0)


def test_a_learner_that_asks_is_asked_alone() -> None:
    bench = made("ana", "ben")
    bench.step("ana", 100)
    assert bench.pulls() == []
    (pull,) = ask(bench, "ben")
    assert pull.ticket.name == "ben"
    (entry,) = bench.entries(Opened)  # it must not grow with the fleet
    assert (entry.asked, entry.left_out) == (["ben"], {})


def test_its_value_goes_to_the_contributor_alone() -> None:
    bench = made("ana", "ben")
    (pull,) = ask(bench, "ben")
    assert exchange(bench, pull) == ["ben"]
    bench.tick(10.0)
    assert bench.receivers(0) == ["ben"]  # again, since it has not said that it adopted it
    (later,) = ask(bench, "ana")
    bench.answer(later)
    assert bench.merge().parts[0].base == Version(1, 0)
    bench.journal()
    assert bench.receivers(0) == ["ana"]  # ben gets the newest only if its own is lost


def test_only_merged_turns_move_the_clock() -> None:
    bench = made("ana", "ben")
    for _ in range(10):
        (pull,) = ask(bench, "ana")
        bench.decline(pull, "not now")
    assert bench.core.durable.clock == 0.0
    for name, clock in (("ana", 2.0), ("ben", 4.0)):
        (pull,) = ask(bench, name)
        exchange(bench, pull)
        assert bench.core.durable.clock == clock
        assert {update.clock for update in bench.updates()} == {clock}


def test_a_part_of_a_turn_moves_the_clock_by_no_more() -> None:
    bench = made("ana", "ben")
    (pull,) = ask(bench, "ana", 1)
    exchange(bench, pull)
    assert bench.core.durable.clock == 0.5


def test_whoever_becomes_eligible_is_asked_without_asking_again() -> None:
    bench = made("ana", "ben")
    bench.view("ana", Status.SUSPECT)
    assert ask(bench, "ana") == []
    (pull,) = ask(bench, "ben")
    exchange(bench, pull)
    bench.view("ana", Status.LIVE)
    assert [pull.ticket.name for pull in bench.pulls()] == ["ana"]


def test_what_was_asked_for_in_a_pause_is_opened_after_it() -> None:
    bench = made("ana", "ben")
    bench.do(MembershipChanged(1, (), paused=True))
    assert ask(bench, "ana") == []
    bench.do(MembershipChanged(1, (), paused=False))
    assert [pull.ticket.name for pull in bench.pulls()] == ["ana"]


def test_fragments_that_do_not_exist_are_not_asked_for() -> None:
    bench = made("ana", "ben")
    bench.learners["ana"].steps += 4
    report = replace(bench.learners["ana"].progress(), due=(FragmentIndex(99), FragmentIndex(-1)))
    bench.do(Received(report, bench.connections["ana"]))
    assert bench.pulls() == []


def test_bases_are_admitted_without_their_values() -> None:
    bench = made("ana")
    (pull,) = ask(bench, "ana")
    assert exchange(bench, pull) == ["ana"]
    newest = bench.core.version(0)
    bench.adopt("ana")
    assert [(one.fragment, one.version) for one in bench.of(ReleaseValues)] == [(0, newest)]
    assert list(bench.core.versions.kept[0]) == [Version(1, 0), newest]


def test_one_round_follows_the_other_and_the_oldest_base_comes_first() -> None:
    bench = made("ana", "ben", "eve")
    (pull,) = ask(bench, "ana")
    exchange(bench, pull)
    bench.adopt("ana")
    (pull,) = ask(bench, "ana")
    assert ask(bench, "ben") == []
    assert ask(bench, "eve") == []
    exchange(bench, pull)
    asked = []
    for name in ("ben", "eve"):
        asked += bench.pulls()
        assert [each.ticket.name for each in bench.pulls()] == [name]
        exchange(bench, bench.pulls()[0])
    assert len(asked) == 2


def test_a_value_under_way_is_not_overtaken_by_the_next_one() -> None:
    bench = made("ana", "ben")
    (pull,) = ask(bench, "ana")
    exchange(bench, pull)
    (pull,) = ask(bench, "ben")
    assert exchange(bench, pull) == ["ben"]
    bench.tick(10.0)
    assert bench.receivers(0) == ["ana", "ben"]  # lost, it seems: the newest takes its place
    assert {update.version for update in bench.updates()} == {Version(1, 2)}


def test_a_base_that_is_too_old_is_replaced() -> None:
    bench = made("ana", "ben", settings=replace(SETTINGS, staleness_max=1))
    for expected in (["ana"], ["ana", "ben"]):
        (pull,) = ask(bench, "ana")
        assert exchange(bench, pull) == expected
        bench.adopt("ana")


def test_staleness_is_counted_in_versions() -> None:
    bench = made("ana", "ben")
    for name in ("ana", "ben", "ana", "ben"):
        (pull,) = ask(bench, name)
        exchange(bench, pull)
        bench.adopt(name)
    assert bench.core.durable.staleness_sum == 0 + 1 + 1 + 1


@pytest.mark.parametrize("gone", ["declined", "link", "suspect", "refused"])
def test_a_learner_that_does_not_answer_holds_nobody_up(gone: str) -> None:
    bench = made("ana", "ben")
    (pull,) = ask(bench, "ana")
    ask(bench, "ben")
    match gone:
        case "declined":
            bench.decline(pull, "leaving")
        case "link":
            bench.drop("ana")
        case "suspect":
            bench.view("ana", Status.SUSPECT)
        case "refused":
            check = Check(schema_ok=True, digest_ok=False, finite=False, norm=0.0)
            bench.answer(pull, check=check)
            assert bench.fates()[0][0] is Fate.REJECTED
    assert len(bench.entries(Abandoned)) == 1
    assert bench.core.rounds.open[0].waiting == ["ben"]


def test_a_restarted_syncer_is_asked_again() -> None:
    """What a learner asks for is in its Hello, and its base is known though others came since."""
    bench = made("ana", "ben")
    (pull,) = ask(bench, "ana")
    exchange(bench, pull)
    bench.adopt("ana")
    later = Bench(SETTINGS, fragments=1, durable=bench.core.durable, epoch=2)
    later.learners, later.connections = bench.learners, {}
    ben = later.learners["ben"]
    ben.steps, ben.phase = 4, Phase.WAITING
    later.hello("ben")
    assert later.receivers(0) == []
    (pull,) = ask(later, "ben", 0)
    assert exchange(later, pull) == ["ben"]
