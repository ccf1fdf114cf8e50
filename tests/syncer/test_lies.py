"""An admitted peer that says anything at all ends nobody but itself."""

import random
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import msgspec
import pytest

from islands.protocol.errors import InvariantError
from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Ticket,
    Version,
)
from islands.protocol.messages.membership import Evicted, Leave
from islands.protocol.messages.training import (
    CURSOR_BYTES_MAX,
    ContributionDeclined,
    FragmentSeed,
    PullFragment,
)
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import state as state_module
from islands.protocol.syncer.actions import BeginMerge, Dismiss, DropContribution, Send
from islands.protocol.syncer.events import (
    ContributionArrived,
    Event,
    LeaveArrived,
    LinkOpened,
    MergeFacts,
    MergeFinished,
    ProgressArrived,
    PullDeclined,
    SeedArrived,
)
from islands.protocol.tape.member_entries import WrongReport
from tests.syncer.bench import GOOD, seeded

T = TypeVar("T")

NUMBERS = (-(2**63), -(10**6), -1, 0, 1, 2, 7, 40, 10**6, 2**31, 2**63, 2**64 - 1)
TIMES = (-1.0, 0.0, 1e-300, 0.1, 1e6, 1e308, float("inf"), float("nan"))
EVE = LearnerName("eve")
KEPT = ("name", "role", "protocol", "run", "fingerprint")
LIES_SHARE = 0.1
HONEST_SHARE = 0.7
HONEST = ("ana", "ben")


def twisted(message: T, chance: random.Random) -> T:
    """The same message, in which some numbers, times and words are others."""
    changed: dict[str, object] = {}
    struct = isinstance(message, msgspec.Struct)
    names = message.__struct_fields__ if struct else [field.name for field in fields(message)]  # type: ignore[attr-defined,arg-type]
    for name in names:
        if name not in KEPT and chance.random() <= LIES_SHARE:
            changed[name] = another(getattr(message, name), chance)
    if isinstance(message, msgspec.Struct):
        return msgspec.structs.replace(message, **changed)
    return replace(message, **changed)  # type: ignore[type-var]


def another(value: object, chance: random.Random) -> object:
    """Something else of the same type."""
    if isinstance(value, Phase):
        return chance.choice(list(Phase))
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return chance.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, float):
        return chance.choice(TIMES)
    if isinstance(value, bytes):
        return chance.randbytes(chance.choice((0, 1, CURSOR_BYTES_MAX, CURSOR_BYTES_MAX + 1)))
    if isinstance(value, tuple):
        shorter = value[: chance.randrange(len(value) + 1)] if chance.random() < 0.1 else value
        return tuple(another(one, chance) for one in shorter)
    assert is_dataclass(value) or isinstance(value, msgspec.Struct)
    return twisted(value, chance)


class Desk:
    """Two honest learners and a liar, a syncer, and the payloads that it is told to keep."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        settings = RunSettings(interval_steps=6, fragments=3, overlap_steps=4)
        self.bench = seeded(*HONEST, EVE, settings=settings, fragments=3)
        self.waiting: set[Ticket] = set()
        self.merging: list[BeginMerge] = []
        self.asked: list[PullFragment] = []
        self.ended: list[object] = []
        self.counter = 1

    def do(self, event: Event) -> None:
        """One event, and whatever the worker, the disk and honest learners do about it."""
        if isinstance(event, ContributionArrived) and event.check.finite:
            self.waiting.add(event.contribution.ticket)
        self.bench.do(event, after_s=0.01)
        self.follow()

    def follow(self) -> None:
        """Payloads are kept and dropped as told; whatever is merged must be there."""
        for action in self.bench.actions:
            match action:
                case DropContribution(ticket):
                    self.waiting.discard(ticket)
                case BeginMerge():
                    assert {part.ticket for part in action.parts} <= self.waiting
                    self.merging.append(action)
                case Dismiss(_, message):
                    self.ended.append(message)
                case Send(_, PullFragment() as pull) if pull.ticket.name in HONEST:
                    self.asked.append(pull)
                case _:
                    pass

    def live(self) -> None:
        """Honest learners step, answer and adopt; a merge is computed, the journal written."""
        for name in HONEST:
            if LearnerName(name) not in self.bench.core.members.learners:
                continue
            self.bench.step(name)
            self.follow()
        while self.asked:
            self.answer(self.asked.pop(0))
        while self.merging:
            begun, ones = self.merging.pop(0), (1.0,) * 3
            facts = MergeFacts(str(begun.target), ones, ones, 1.0, 0.0)
            self.do(MergeFinished(begun.fragment, begun.round, facts))
        while self.bench.core.books.journalling:
            self.bench.journal()
            self.follow()
        for name in HONEST:
            self.bench.adopt(name)
            self.follow()

    def answer(self, pull: PullFragment) -> None:
        """An honest answer, or one of the liar."""
        message = self.bench.contribution(pull)
        if pull.ticket.name == EVE:
            message = twisted(message, self.chance)
            message = replace(message, ticket=replace(message.ticket, name=EVE))
        self.do(ContributionArrived(message, GOOD, self.bench.connections[pull.ticket.name]))

    def lie(self) -> None:
        """The liar says something, over a link of its own, and comes back when it was ended."""
        bench, chance = self.bench, self.chance
        if EVE not in bench.core.members.learners:
            self.counter += 1
            bench.hello(EVE, counter=self.counter)
            self.follow()
            bench.journal()
            self.follow()
        if chance.random() < HONEST_SHARE:
            bench.adopt(EVE)
            self.follow()
            bench.step(EVE)
            self.follow()
        liar, number = bench.learners[EVE], bench.connections[EVE]
        ticket = Ticket(
            chance.choice((0, 1, 2)),
            chance.choice((*NUMBERS, *range(max(1, bench.core.durable.round + 2)))),
            EVE,
            chance.choice((liar.incarnation, Incarnation(1, 1), Incarnation(9, 9))),
        )
        if liar.versions[0] is not None and chance.random() < 0.5:
            liar.steps += 1
        told = twisted(liar.progress(), chance)
        fragment = FragmentIndex(chance.choice((*NUMBERS, 0, 1, 2)))
        held = replace(bench.hello_of(liar), progress=told)
        lies: list[Event] = [
            ProgressArrived(told, number),
            LinkOpened(twisted(held, chance), number + 1, trusted=True),
            PullDeclined(ContributionDeclined(ticket, fragment, "")),
            SeedArrived(FragmentSeed(1, fragment, EVE, liar.incarnation, "x"), intact=True),
            LeaveArrived(Leave(EVE, ticket.incarnation, "bye")),
        ]
        event = chance.choice(lies)
        if isinstance(event, LinkOpened):
            bench.connections[EVE] = number + 1
        self.do(event)
        for round_ in list(bench.core.rounds.open.values()):
            if EVE in round_.asked:
                pull = PullFragment(
                    round_.asked[EVE], FragmentIndex(round_.fragment), Version(1, 0)
                )
                if liar.versions[round_.fragment] is not None:
                    self.answer(pull)


@pytest.mark.parametrize("number", range(6))
def test_lies_of_all_kinds_end_only_their_sender(number: int) -> None:
    """The honest are never dismissed, merge on, and every token keeps its fate."""
    desk = Desk(number)
    for _ in range(60):
        desk.lie()
        desk.live()
    assert not [end for end in desk.ended if getattr(end, "name", "") in HONEST]
    assert desk.bench.core.durable.merges > 20
    assert all(row.imbalance == 0 for row in desk.bench.state.ledger_rows())


def test_what_no_check_foresaw_ends_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tape says so, the sender is ended, and the syncer goes on; a bug of ours ends it."""
    bench = seeded(*HONEST)

    def stumble(error: Exception) -> None:
        def take(*_: object) -> None:
            raise error

        monkeypatch.setattr(state_module, "on_progress", take)

    stumble(KeyError("forgotten"))
    bench.step("ana")
    (evicted,) = bench.dismissed()
    assert isinstance(evicted, Evicted)
    assert bench.entries(WrongReport)
    assert LearnerName("ana") not in bench.core.members.learners
    stumble(InvariantError("ours"))
    with pytest.raises(InvariantError):
        bench.step("ben")
