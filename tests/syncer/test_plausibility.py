"""What a peer claims counts as far as the syncer can know; a lie ends nobody but its sender."""

import random
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import TypeVar, get_args

import msgspec
import pytest
from msgspec import structs

from islands.protocol.errors import InvariantError
from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Ticket,
    Version,
)
from islands.protocol.messages import training
from islands.protocol.messages.membership import Evicted, Leave, Refused
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import events
from islands.protocol.syncer.actions import Action, BeginMerge, Dismiss, DropContribution, Send
from islands.protocol.syncer.leases import LeaseBook
from islands.protocol.syncer.memory import EVENTS, HANDLERS
from islands.protocol.syncer.plausibility import (
    ANSWERS_KEPT,
    Answers,
    ReportedTotals,
    believed_batch,
    believed_step_s,
    wrong_report,
    wrong_steps,
)
from islands.protocol.syncer.rounds import Stage
from islands.protocol.tape.entry import Record
from islands.protocol.tape.member_entries import WrongReport
from tests.syncer.bench import BATCH, GOOD, Bench, opened, report_of, seeded

ANA = LearnerName("ana")
WHO = Incarnation(1, 1)
BASE, OLDER = Version(1, 3), Version(1, 2)


def told(*, steps: int = 30, pending: int = 12, batch: int = BATCH) -> training.Progress:
    tokens = steps * batch
    since = steps - pending
    one = training.FragmentProgress(BASE, since, since * batch, since * batch)
    return report_of(ANA, tokens, one, batch=batch)


def contribution(
    steps: int, *, tokens: int = 12 * BATCH, processed: int = 30 * BATCH, base: Version = BASE
) -> training.Contribution:
    ticket = Ticket(1, 7, ANA, WHO)
    return training.Contribution(
        ticket, FragmentIndex(0), base, steps, tokens, processed, "float32", ""
    )


def marks(*totals: int) -> ReportedTotals:
    kept = ReportedTotals()
    for steps in totals:
        kept.add(steps, steps * BATCH)
    return kept


REPORTED = (18, 30)
between = partial(contribution, tokens=5 * BATCH, processed=23 * BATCH)
ahead = partial(contribution, tokens=14 * BATCH, processed=32 * BATCH)
FRESH = told(steps=0, pending=0)


@pytest.mark.parametrize(
    ("said", "report", "reported", "true"),
    [
        # Its base was adopted after 18 steps and it was taken after 30. Fewer steps would give it
        # more weight, tokens² / steps; more would hide its norm, which is judged per √steps.
        *((contribution(n), told(), REPORTED, n == 12) for n in (-1, 0, 1, 4, 11, 12, 13, 48, 121)),
        (contribution(10**6), told(), REPORTED, False),
        # Between two reports it may be any boundary.
        *((between(n), told(), (18, 20, 25, 30), n < 7) for n in range(3, 8)),
        # It may overtake the report of its last steps.
        *((ahead(n), told(), REPORTED, n == 14) for n in (12, 14)),
        # Of a base that is not held any more the mean batch decides.
        *(
            (contribution(n, base=OLDER), told(), REPORTED, 4 <= n <= 48)
            for n in (2, 4, 12, 48, 60)
        ),
        # Without a reported step, the batch that it named decides.
        *((contribution(n, base=OLDER), FRESH, (), n == 12) for n in (1, 12)),
    ],
)
def test_steps_are_those_that_were_reported(
    said: training.Contribution, report: training.Progress, reported: tuple[int, ...], *, true: bool
) -> None:
    assert (wrong_steps(said, report, marks(*reported)) is None) is true


@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (1, 500), (10**7, 1), (10**7, 500)])
def test_honest_steps_are_believed_at_both_ends(batch: int, steps: int) -> None:
    kept = ReportedTotals()
    kept.add(steps, steps * batch)
    whole = contribution(steps, tokens=steps * batch, processed=steps * batch)
    assert wrong_steps(whole, told(steps=steps, pending=steps, batch=batch), kept) is None


@pytest.mark.parametrize("steps", [1, 10**6])
def test_a_lie_about_steps_has_no_weight(steps: int) -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=24, fragments=2, quorum=None))
    for pull in opened(bench):
        message = bench.contribution(pull)
        lie = replace(message, steps=steps) if pull.ticket.name == "ana" else message
        assert message.steps > 10
        connection = bench.connections[pull.ticket.name]
        bench.do(events.ContributionArrived(lie, GOOD, connection))
        if pull.ticket.name == "ana":
            assert [fate for fate, _ in bench.fates()] == [Fate.REJECTED]
    assert len(bench.core.members.wrongs[ANA]) == 1
    (begun,) = bench.of(BeginMerge)
    assert [part.ticket.name for part in begun.parts] == ["ben"]


def changed(progress: training.Progress, **fields: int) -> training.Progress:
    return replace(progress, fragments=(structs.replace(progress.fragments[0], **fields),))


@pytest.mark.parametrize(
    "lie",
    [
        replace(told(), steps=10**6),
        replace(told(), steps=0),
        replace(told(), steps=-1),
        replace(told(), batch_tokens=-1),
        changed(told(), base_steps=-1),
        changed(told(), base_steps=31),
        changed(told(), settled_tokens=-1),
        changed(told(), settled_tokens=30 * BATCH - 11),
        changed(told(), overwritten_tokens=-1),
    ],
    ids=range(9),
)
def test_counts_that_cannot_be_true_are_found(lie: training.Progress) -> None:
    assert wrong_report(None, told(), [0]) is None
    assert wrong_report(None, lie, [0]) is not None


def test_what_came_since_the_last_report_is_judged_alone() -> None:
    before = told()
    assert wrong_report(before, told(steps=31), [0]) is None
    assert wrong_report(before, replace(before, steps=before.tokens), []) is not None
    assert wrong_report(before, replace(before, tokens=before.tokens + BATCH), []) is not None


def test_a_step_time_counts_as_far_as_time_has_passed() -> None:
    """A week for one step, a second after the last: two seconds, and one by which reports jitter.

    What is true is believed, also of a report that comes a little early.
    """
    assert believed_step_s(7 * 86400.0, steps=1, elapsed_s=1.0, slack_s=1.0) == 3.0
    for step_s in (0.001, 1.0, 300.0):
        early_s = 4 * step_s - min(1.0, step_s)
        assert believed_step_s(step_s, steps=4, elapsed_s=early_s, slack_s=1.0) == step_s


@pytest.mark.parametrize("late", [False, True])
def test_a_claimed_step_time_counts_from_its_link_and_stretches_no_timeout(*, late: bool) -> None:
    """Also that of a learner which comes late: not from the time 0 of the syncer's clock."""
    bench, name = seeded("ana"), "ben" if late else "ana"
    if late:
        bench.now_s = 1e6
        bench.hello("ben")
        bench.adopt("ben")
    learner = bench.learners[name]
    learner.steps += 1
    lie = replace(learner.progress(), step_time_s=86400.0)
    bench.do(Received(lie, bench.connections[name]), after_s=2.0)
    assert 0 < bench.record(name).step_s <= 5.0
    believed_s = bench.core.rounds.durations.step_s.value
    assert late or (believed_s is not None and believed_s <= 5.0)


def test_a_batch_is_believed_as_far_as_steps_bear_it_out() -> None:
    assert believed_batch(told()) == BATCH
    assert believed_batch(replace(told(), batch_tokens=10**12)) == 4 * BATCH
    assert believed_batch(told(steps=0, pending=0)) == BATCH


def test_a_claimed_batch_does_not_take_the_whole_budget() -> None:
    """A learner that has shown no step gets its share, though it says that a batch is all there is.

    One that has shown its batch gets one also at the very end; so does one who is alone.
    """
    leases = LeaseBook(shards=8, budget_tokens=10_000, chunk_steps=8)
    for name in ("ana", "ben"):
        leases.open(LearnerName(name), WHO)
    assert leases.top_up(ANA, batch_tokens=10_000, members=2, chunk_steps=8, proven=False)
    assert leases.remaining_tokens == 10_000
    assert leases.top_up(ANA, batch_tokens=4_000, members=2, chunk_steps=8, proven=False)
    assert leases.remaining_tokens == 6_000
    assert leases.top_up(LearnerName("ben"), batch_tokens=4_000, members=2, chunk_steps=8)
    assert leases.remaining_tokens == 2_000


@pytest.mark.parametrize(
    "fields",
    [
        {"fragment": FragmentIndex(1)},
        {"fragment": FragmentIndex(9)},
        {"fragment": FragmentIndex(-1)},
        {"tokens": 0},
        {"base": Version(0, 0)},
    ],
    ids=range(5),
)
def test_a_repetition_never_takes_away_what_waits_for_its_merge(fields: dict[str, object]) -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=None))
    ana, ben = opened(bench)
    bench.answer(ana)
    bench.answer(ana, **fields)  # type: ignore[arg-type]
    assert bench.of(DropContribution) == []
    bench.answer(ben)
    (begun,) = bench.of(BeginMerge)
    assert [part.ticket.name for part in begun.parts] == ["ana", "ben"]


def test_many_other_answers_do_not_make_a_repetition_new() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=None))
    ana, _ = opened(bench)
    bench.answer(ana)
    for number in range(100, 101 + ANSWERS_KEPT):
        bench.answer(ana, ticket=replace(ana.ticket, round=number))
    bench.answer(ana, tokens=0)
    assert bench.of(DropContribution) == []
    assert len(bench.core.rounds.open[0].arrived) == 1


def test_who_sends_more_copies_than_a_link_makes_is_refused_at_last() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=None))
    ana, _ = opened(bench)
    for wrongs in (0, 0, 1, 2):
        bench.answer(ana)
        assert len(bench.core.members.wrongs.get(ANA, ())) == wrongs
        assert bench.dismissed() == []
    bench.answer(ana)
    refusal = bench.last_word(Refused)
    assert "5 answers to one pull; that is the time number 3 within 600 s" in refusal.reason


def test_copies_are_counted_over_each_link() -> None:
    answers = Answers()
    assert not answers.has(1, 7)
    assert [answers.count(1, 7, 1), answers.count(1, 7, 1), answers.count(1, 7, 2)] == [1, 2, 1]
    for number in range(8, 8 + ANSWERS_KEPT):
        assert answers.has(1, 7)
        answers.count(1, number, 2)
    assert not answers.has(1, 7)
    assert answers.has(1, 8)


@pytest.mark.parametrize("decided", ["its round is abandoned", "it is refused", "it is merged"])
def test_what_has_its_fate_keeps_it_when_its_link_breaks(decided: str) -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=2))
    ana, ben = opened(bench)
    bench.answer(ana, check=replace(GOOD, finite=decided != "it is refused"))
    answer = bench.contribution(ana)
    bench.drop("ana")
    if decided == "it is merged":
        bench.answer(ben)
        bench.merge()
    bench.hello("ana")
    assert ana not in bench.pulls()
    bench.step("ana")
    if decided == "its round is abandoned":
        bench.tick(1e6)
        assert ana.fragment not in bench.core.rounds.open
        bench.hello("ana")
    bench.step("ana")
    assert ana not in bench.pulls()
    bench.do(events.ContributionArrived(answer, GOOD, bench.connections["ana"]))
    assert bench.fates() == []
    assert [action.entry.kind for action in bench.of(Record)] == ["duplicate"]
    assert bench.of(DropContribution) == [DropContribution(ana.ticket)]


def test_a_copy_that_comes_between_merge_and_journal_is_not_kept() -> None:
    """What was held for the merge is gone by then, so nothing would ever free the copy."""
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=None))
    ana, ben = opened(bench)
    bench.answer(ana)
    bench.answer(ben)
    bench.merge()
    assert bench.core.rounds.open[ana.fragment].stage is Stage.JOURNALLING
    bench.answer(ana)
    assert bench.of(DropContribution) == [DropContribution(ana.ticket)]


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
    if isinstance(value, Phase):
        return chance.choice(list(Phase))
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return chance.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, float):
        return chance.choice(TIMES)
    if isinstance(value, tuple):
        shorter = value[: chance.randrange(len(value) + 1)] if chance.random() < 0.1 else value
        return tuple(another(one, chance) for one in shorter)
    assert is_dataclass(value) or isinstance(value, msgspec.Struct)
    return twisted(value, chance)


class Desk(Bench):
    """Two honest learners and a liar, a syncer, and the payloads that it is told to keep."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.waiting: set[Ticket] = set()
        self.merging: list[BeginMerge] = []
        self.asked: list[training.PullFragment] = []
        self.ended: list[object] = []
        self.counter = 1
        super().__init__(RunSettings(interval_steps=6, fragments=3, overlap_steps=4), fragments=3)
        for name in (*HONEST, EVE):
            self.hello(name)
        self.seed()
        self.journal()

    def do(self, event: events.Event, *, after_s: float = 0.01) -> list[Action]:
        """One event; payloads are kept and dropped as told; whatever is merged must be there."""
        if isinstance(event, events.ContributionArrived) and event.check.finite:
            self.waiting.add(event.contribution.ticket)
        for action in super().do(event, after_s=after_s):
            match action:
                case DropContribution(ticket):
                    self.waiting.discard(ticket)
                case BeginMerge():
                    assert {part.ticket for part in action.parts} <= self.waiting
                    self.merging.append(action)
                case Dismiss(_, message):
                    self.ended.append(message)
                case Send(_, training.PullFragment() as pull) if pull.ticket.name in HONEST:
                    self.asked.append(pull)
                case _:
                    pass
        return self.actions

    def live(self) -> None:
        for name in HONEST:
            if LearnerName(name) not in self.core.members.learners:
                continue
            self.step(name)
        while self.asked:
            self.say(self.asked.pop(0))
        while self.merging:
            begun, ones = self.merging.pop(0), (1.0,) * 3
            facts = events.MergeFacts(str(begun.target), ones, ones, 1.0, 0.0)
            self.do(events.MergeFinished(begun.fragment, begun.round, facts))
        while self.core.journal.journalling:
            self.journal()
        for name in HONEST:
            self.adopt(name)

    def say(self, pull: training.PullFragment) -> None:
        message = self.contribution(pull)
        if pull.ticket.name == EVE:
            message = twisted(message, self.chance)
            message = replace(message, ticket=replace(message.ticket, name=EVE))
        self.do(events.ContributionArrived(message, GOOD, self.connections[pull.ticket.name]))

    def lie(self) -> None:
        """The liar says something, over a link of its own, and comes back when it was ended."""
        chance = self.chance
        if EVE not in self.core.members.learners:
            self.counter += 1
            self.hello(EVE, counter=self.counter)
            self.journal()
        if chance.random() < HONEST_SHARE:
            self.adopt(EVE)
            self.step(EVE)
        liar, number = self.learners[EVE], self.connections[EVE]
        ticket = Ticket(
            chance.choice((0, 1, 2)),
            chance.choice((*NUMBERS, *range(max(1, self.core.durable.round + 2)))),
            EVE,
            chance.choice((liar.incarnation, Incarnation(1, 1), Incarnation(9, 9))),
        )
        if liar.versions[0] is not None and chance.random() < 0.5:
            liar.steps += 1
        told = twisted(liar.progress(), chance)
        fragment = FragmentIndex(chance.choice((*NUMBERS, 0, 1, 2)))
        held = replace(self.hello_of(liar), progress=told)
        lies: list[events.Event] = [
            Received(told, number),
            events.LinkOpened(twisted(held, chance), number + 1, trusted=True),
            Received(training.ContributionDeclined(ticket, fragment, ""), 0),
            events.SeedArrived(
                training.FragmentSeed(1, fragment, EVE, liar.incarnation, "x"), intact=True
            ),
            Received(Leave(EVE, ticket.incarnation, "bye"), 0),
        ]
        event = chance.choice(lies)
        if isinstance(event, events.LinkOpened):
            self.connections[EVE] = number + 1
        self.do(event)
        for round_ in list(self.core.rounds.open.values()):
            if EVE in round_.asked:
                pull = training.PullFragment(
                    round_.asked[EVE], FragmentIndex(round_.fragment), Version(1, 0)
                )
                if liar.versions[round_.fragment] is not None:
                    self.say(pull)


@pytest.mark.parametrize("number", range(6))
def test_lies_of_all_kinds_end_only_their_sender(number: int) -> None:
    desk = Desk(number)
    for _ in range(60):
        desk.lie()
        desk.live()
    assert not [end for end in desk.ended if getattr(end, "name", "") in HONEST]
    assert desk.core.durable.merges > 20
    assert all(row.imbalance == 0 for row in desk.state.ledger_rows())


def test_each_event_has_a_handler() -> None:
    assert set(get_args(events.Event)) <= EVENTS._of.keys()  # noqa: SLF001


def test_what_no_check_foresaw_ends_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = seeded(*HONEST)

    def stumble(error: Exception) -> None:
        def take(*_: object) -> None:
            raise error

        monkeypatch.setattr(HANDLERS, "handle", take)

    stumble(KeyError("forgotten"))
    bench.step("ana")
    bench.last_word(Evicted)
    assert bench.entries(WrongReport)
    assert LearnerName("ana") not in bench.core.members.learners
    stumble(InvariantError("ours"))
    with pytest.raises(InvariantError):
        bench.step("ben")
