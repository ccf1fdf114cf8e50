"""What is said again, and how often."""

from islands.protocol.identities import LearnerName, Version
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.members import Sent
from islands.protocol.syncer.timeouts import DOUBLED_MAX, TIME_MAX_S
from islands.protocol.tape.round_entries import GraceZero
from tests.syncer.bench import Bench, opened, seeded

TICK_S = 0.25


def behind() -> tuple[Bench, int, Version]:
    """Ben has not adopted the newest version of a fragment."""
    bench = seeded("ana", "ben")
    pull = next(pull for pull in opened(bench) if pull.ticket.name == "ana")
    bench.answer(pull)
    bench.merge()
    bench.journal()
    bench.adopt("ana")
    version = bench.state.version(pull.fragment)
    assert version is not None
    return bench, pull.fragment, version


def repeats(bench: Bench, seconds: float) -> list[tuple[float, FragmentUpdate]]:
    """Values that are sent again within so many seconds, and when."""
    sent: list[tuple[float, FragmentUpdate]] = []
    for _ in range(round(seconds / TICK_S)):
        bench.tick(TICK_S)
        sent += [(bench.now_s, update) for update in bench.updates()]
    return sent


def test_a_value_waits_twice_as_long_after_each_repetition() -> None:
    """Over a narrow link it is under way for long; each time it was queued once more."""
    bench, fragment, version = behind()
    begun_s = bench.now_s
    sent = repeats(bench, 70.0)
    assert {(update.fragment, update.version) for _, update in sent} == {(fragment, version)}
    assert [round(at_s - begun_s) for at_s, _ in sent] == [2, 6, 14, 30, 62]


def test_a_newer_version_has_waited_for_nothing() -> None:
    """It is repeated as soon as any that is sent for the first time."""
    learner = behind()[0].core.members.learners[LearnerName("ben")]
    for at_s in (0.0, 2.0, 6.0):
        learner.sending(0, Version(1, 7), at_s)
    assert learner.sent[0].due_s(2.0) == 14.0
    learner.sending(0, Version(1, 8), 7.0)
    assert learner.sent[0].due_s(2.0) == 9.0


def test_a_new_link_begins_anew() -> None:
    """What was on its way over the old one is lost with it."""
    bench, fragment, version = behind()
    repeats(bench, 40.0)
    bench.drop("ben")
    bench.hello("ben")
    assert (fragment, version) in [(u.fragment, u.version) for u in bench.updates()]
    assert len(repeats(bench, 3.0)) >= 1


def test_repetitions_never_cease() -> None:
    """The wait is bounded."""
    often = Sent(Version(1, 1), 0.0, 0.0, times=1000)
    assert often.due_s(2.0) == 2.0 * 2**DOUBLED_MAX
    assert often.due_s(600.0) == TIME_MAX_S


def test_an_exchange_longer_than_the_overlap_is_on_the_tape() -> None:
    """With what is lacking, and the overlap that would do."""
    bench = seeded("ana", settings=RunSettings(interval_steps=4, fragments=2, overlap_steps=2))
    bench.core.rounds.durations.step_s.add(0.1)
    bench.core.rounds.durations.quorum_s.add(0.3)
    bench.core.rounds.durations.sync_s.add(0.2)
    told: list[GraceZero] = []
    for _ in range(200):
        bench.tick(TICK_S)
        told += bench.entries(GraceZero)
    assert len(told) == 1
    assert told[0].overlap_steps == 2
    assert told[0].overlap_steps_needed == 6
    assert round(told[0].lacking_s, 3) == 0.3
