"""What is kept of learners costs an event the same among many as few; whom a round may ask."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import LearnerHost, NumpyTrainers, World
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status, Version
from islands.protocol.messages.control import Verb
from islands.protocol.messages.membership import Evicted, Member, MembershipChanged
from islands.protocol.messages.training import FragmentProgress, Progress
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import Action
from islands.protocol.syncer.events import Event
from islands.protocol.syncer.journalling import NAMES_KEPT, Fence
from islands.protocol.syncer.members import (
    BUSY,
    SILENT,
    LearnerRecord,
    ineligible_because,
    stale_because,
    unready_because,
)
from islands.protocol.syncer.pulls import EXACT, AdaptivePrecision
from islands.syncer.journal import encode
from messaging.simulation.virtual_time import run_virtual
from tests.lab.world.worlds import ended, until
from tests.syncer.bench import Bench, Learner, seeded

FEW, MANY = 8, 64
BATCH_TOKENS = 100
MEASURED_S = 24.0


class Counted(dict[LearnerName, Any]):
    def __init__(self, visits: list[int], content: Any) -> None:  # noqa: ANN401  as below
        super().__init__(content)
        self._visits = visits

    def __getitem__(self, name: LearnerName) -> Any:  # noqa: ANN401  the tests count looks at anything
        self._visits[0] += 1
        return super().__getitem__(name)

    def get(self, name: LearnerName, default: Any = None) -> Any:  # noqa: ANN401  as above
        self._visits[0] += 1
        return super().get(name, default)

    def __iter__(self) -> Iterator[LearnerName]:
        self._visits[0] += len(self)
        return super().__iter__()

    def values(self) -> Any:  # noqa: ANN401  as above
        self._visits[0] += len(self)
        return super().values()

    def items(self) -> Any:  # noqa: ANN401  as above
        self._visits[0] += len(self)
        return super().items()


def visits_per_event(learners: int, *, budget: bool) -> tuple[float, float]:
    """Looks at records, books and quotas per event: while a run goes on, and while it ends."""
    settings = RunSettings(budget_tokens=50 * learners * BATCH_TOKENS if budget else None)
    hosts = {
        f"learner-{index:02}": LearnerHost(1.0, 0.05, batch_tokens=BATCH_TOKENS)
        for index in range(learners)
    }
    trainers = NumpyTrainers(settings, shards=max(64, 8 * learners))
    world = World(settings, hosts, seed=1, tape=MemoryTape(limit=1000), trainers=trainers)
    events, visits = [0], [0]

    def steps(name: str) -> bool:
        learner = world.learner(name)
        return learner is not None and learner.state.phase is Phase.STEPPING

    async def live() -> tuple[float, float]:
        world.start_all()
        await until(lambda: world.syncer_state is not None)
        state = world.syncer_state
        assert state is not None
        state.core.members.learners = Counted(visits, state.core.members.learners)
        state.core.durable.leases.holders = Counted(visits, state.core.durable.leases.holders)
        state.core.durable.ledger.books = Counted(visits, state.core.durable.ledger.books)
        handle = state.handle

        def counted(event: Event, *, now_s: float) -> list[Action]:
            events[0] += 1
            return handle(event, now_s=now_s)

        state.handle = counted  # type: ignore[method-assign]
        await until(lambda: all(steps(name) for name in hosts))
        events[0] = visits[0] = 0
        await asyncio.sleep(MEASURED_S)
        going = visits[0] / events[0]
        events[0] = visits[0] = 0
        assert await world.command(Verb.STOP) is not None
        await ended(world)
        return going, visits[0] / events[0]

    return run_virtual(live(), limit_s=1000.0)


@pytest.mark.parametrize("budget", [False, True])
def test_an_event_costs_the_same_among_many_learners_as_among_few(budget: bool) -> None:  # noqa: FBT001  a parameter of the test
    """With eight times as many learners, an event looks at no more records, also at the end.

    What is done once a round or once a second for every learner is shared by as many events.
    """
    few, many = visits_per_event(FEW, budget=budget), visits_per_event(MANY, budget=budget)
    for some, more in zip(few, many, strict=True):
        assert more <= 1.5 * some, (few, many)


RECORD_BYTES_MAX = 400_000
"""Of the metadata of a run that has two learners, whoever has ended."""

PAGE = 1000


def with_ended(bench: Bench, names: int) -> None:
    """So many learners have come and gone, each under a name of its own, says the supervisor."""
    for begin in range(10, names + 10, PAGE):
        counters = range(begin, min(begin + PAGE, names + 10))
        ended = [
            (f"worker-7f3a91c2-{counter:06d}", Incarnation(1, counter)) for counter in counters
        ]
        members = tuple(Member(LearnerName(name), who, Status.EVICTED) for name, who in ended)
        bench.do(MembershipChanged(1, members))


def test_a_record_stays_small_whoever_came_and_went() -> None:
    bench = seeded("ana", "ben")
    with_ended(bench, 30_000)
    assert len(encode(bench.state.durable)) < RECORD_BYTES_MAX


def test_who_was_forgotten_is_still_fenced() -> None:
    bench = seeded("ana")
    with_ended(bench, 2 * NAMES_KEPT)
    zombie = Learner("worker-7f3a91c2-000010", bench.fragments, 10)
    assert not bench.core.durable.fence.knows(zombie.name)
    bench.open(zombie, 50)
    bench.last_word(Evicted)


def test_who_is_below_the_floor_with_an_open_account_goes_on() -> None:
    bench = seeded("ana")
    with_ended(bench, 2 * NAMES_KEPT)
    floor = bench.core.durable.fence.floor
    assert floor is not None
    assert bench.learners["ana"].incarnation < floor
    bench.drop("ana")
    bench.hello("ana", connection=50)
    assert bench.dismissed() == []
    assert bench.record("ana").connection == 50


def test_the_word_of_an_older_end_lowers_no_fence() -> None:
    fence, ana = Fence(), LearnerName("ana")
    fence.end(ana, Incarnation(1, 5))
    fence.end(ana, Incarnation(1, 3))
    assert fence.ended(ana, Incarnation(1, 4), open_account=False)


def test_forgetting_lets_nobody_in_who_had_ended(seed: int) -> None:
    chance, fence = random.Random(seed), Fence()
    ended: dict[LearnerName, Incarnation] = {}
    for counter in range(1, 3 * NAMES_KEPT):
        name = LearnerName(f"n{chance.randrange(2 * NAMES_KEPT)}")
        ended[name] = Incarnation(1 + counter // 5000, counter)
        fence.end(name, ended[name])
    for name in chance.sample(sorted(ended), 200):
        assert fence.ended(name, ended[name], open_account=False)
        assert not fence.ended(name, Incarnation(9, 1), open_account=False)


KEPT = (Version(1, 3), Version(1, 4), Version(2, 5))
PROGRESS = Progress(
    name=LearnerName("a"),
    incarnation=Incarnation(1, 1),
    phase=Phase.STEPPING,
    steps=10,
    tokens=100,
    step_time_s=0.1,
    batch_tokens=10,
    quota_tokens=1000,
    fragments=(FragmentProgress(Version(2, 5), 7, 70), FragmentProgress(Version(1, 4), 10, 100)),
    leases=(),
)


def record(progress: Progress = PROGRESS) -> LearnerRecord:
    precision = AdaptivePrecision(EXACT, 0)
    return LearnerRecord(LearnerName("a"), Role.LEARNER, Incarnation(1, 1), progress, 1, precision)


def test_a_live_stepping_learner_is_eligible() -> None:
    assert ineligible_because(record(), 0, kept=KEPT, merged=None) is None


AILING = (Status.SUSPECT, Status.STALLED, Status.EVICTED, Status.LEFT)
FRESH, ABLE = (Phase.JOINING, Phase.COMPILING, Phase.HEALING), (Phase.STARVED, Phase.FINISHED)
BARE = (FragmentProgress(), PROGRESS.fragments[1])


@pytest.mark.parametrize(
    ("report", "changed", "reason"),
    [
        ({}, {"role": Role.OBSERVER}, "does not contribute"),
        ({}, {"connection": None}, "link down"),
        *(({}, {"status": status}, status.value) for status in AILING),
        *(({"phase": phase}, {}, phase.value) for phase in FRESH),
        *(({"phase": phase}, {}, None) for phase in ABLE),
        ({"fragments": BARE}, {}, "has not adopted every fragment"),
    ],
)
def test_a_ready_learner_is_live_linked_and_whole(
    report: dict[str, object], changed: dict[str, object], reason: str | None
) -> None:
    learner = record(replace(PROGRESS, **report))  # type: ignore[arg-type]
    for name, value in changed.items():
        setattr(learner, name, value)
    assert unready_because(learner) == reason


def test_two_unanswered_pulls_are_enough_until_their_link_is_gone() -> None:
    learner = record()
    learner.pulls.send(7, 0, 0.0)
    assert unready_because(learner) is None
    learner.pulls.send(8, 1, 0.0)
    assert unready_because(learner) == BUSY
    learner.lost()
    learner.opened(2, 1.0)
    assert unready_because(learner) is None


def test_a_silent_learner_has_one_pull_at_a_time_and_is_redeemed_by_a_word() -> None:
    """Silence is that nothing was heard since an overdue pull was sent; a report ends it."""
    learner = record()
    learner.hears(1.0)
    learner.pulls.send(7, 0, 2.0)
    assert not learner.falls_silent(11.9, 10.0)
    assert learner.falls_silent(12.0, 10.0)
    assert not learner.falls_silent(12.0, 10.0)  # it is so already
    assert unready_because(learner) == SILENT
    assert learner.hears(13.0)
    assert unready_because(learner) is None
    assert not learner.falls_silent(600.0, 10.0)  # it was heard since: its answer is under way


def test_it_needs_a_step_since_its_base() -> None:
    reason = ineligible_because(record(), 1, kept=KEPT, merged=None)
    assert reason == "no step since it adopted its base"


@pytest.mark.parametrize(
    ("base", "merged", "fresh"),
    [
        (Version(2, 5), None, True),
        (Version(1, 3), None, True),
        (Version(1, 2), None, False),  # not kept any more
        (Version(1, 5), None, False),  # of another epoch, never committed here
        (None, None, False),
        (Version(1, 4), Version(2, 5), False),  # its own contribution is in 2.5
        (Version(2, 5), Version(2, 5), True),
    ],
)
def test_a_base_must_be_kept_and_contain_the_own_contribution(
    base: Version | None, merged: Version | None, *, fresh: bool
) -> None:
    assert (stale_because(base, kept=KEPT, merged=merged) is None) is fresh
