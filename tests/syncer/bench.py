"""A syncer's state on the bench: scripted learners, and a journal done when the test says so."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from islands.protocol.identities import (
    TRAINING,
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Phase,
    Role,
    Status,
    Version,
)
from islands.protocol.messages import training
from islands.protocol.messages.membership import Member, MembershipChanged
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import actions, events
from islands.protocol.syncer.closing import tokens_used_up
from islands.protocol.syncer.journalling import Durable, fresh
from islands.protocol.syncer.leases import Holder
from islands.protocol.syncer.members import LearnerRecord, unready_because
from islands.protocol.syncer.memory import Closing, SyncerMemory
from islands.protocol.syncer.plausibility import Check
from islands.protocol.syncer.pulls import EXACT, Level
from islands.protocol.syncer.state import SyncerState
from islands.protocol.syncer.versions import Seeding
from islands.protocol.tape.entry import Entry, Record
from islands.protocol.tape.round_entries import FateTold

T = TypeVar("T")
E = TypeVar("E", bound=Entry)
FINGERPRINT = "bench"
BATCH = 10
FIRST = Incarnation(1, 1)
CONNECTION = 500
"""The link of an observer, unless another number is given."""
GOOD = Check(schema_ok=True, digest_ok=True, finite=True, norm=1.0)


def report_of(
    name: str,
    tokens: int,
    *told: training.FragmentProgress,
    batch: int = BATCH,
    incarnation: Incarnation = FIRST,
    leases: tuple[Lease, ...] = (),
) -> training.Progress:
    """A report of a learner that steps, in batches of one size since its beginning."""
    return training.Progress(
        *(LearnerName(name), incarnation, Phase.STEPPING, tokens // batch, tokens),
        *(0.1, batch, 10**9, told, leases),
    )


class Learner:
    """What a scripted learner would report: it adopts what it is told to, and counts."""

    step_tokens = BATCH

    def __init__(self, name: str, fragments: int, counter: int) -> None:
        self.name = LearnerName(name)
        self.incarnation = Incarnation(1, counter)
        self.phase = Phase.HEALING
        self.steps = 0
        self.step_time_s = 0.1
        self.batch_tokens = self.step_tokens
        self.quota = 0
        self.leases: tuple[Lease, ...] = ()
        self.versions: list[Version | None] = [None] * fragments
        self.marks = [0] * fragments
        self.merged = [0] * fragments
        self.overwritten = [0] * fragments

    def adopt(self, fragment: int, version: Version, merged_tokens: int = 0) -> None:
        """Take a version as base; of the tokens since the last one, so many were merged."""
        done = (self.steps - self.marks[fragment]) * self.step_tokens
        self.overwritten[fragment] += done - merged_tokens
        self.versions[fragment], self.marks[fragment] = version, self.steps

    def progress(self) -> training.Progress:
        return training.Progress(
            name=self.name,
            incarnation=self.incarnation,
            phase=self.phase,
            steps=self.steps,
            tokens=self.steps * self.step_tokens,
            step_time_s=self.step_time_s,
            batch_tokens=self.batch_tokens,
            quota_tokens=self.quota,
            fragments=tuple(
                training.FragmentProgress(
                    version=version,
                    base_steps=mark,
                    settled_tokens=mark * self.step_tokens,
                    overwritten_tokens=overwritten,
                )
                for version, mark, overwritten in zip(
                    self.versions, self.marks, self.overwritten, strict=True
                )
            ),
            leases=self.leases,
        )

    def hello(self, run: str, fingerprint: str) -> training.Hello:
        return training.Hello(
            protocol=PROTOCOL,
            run=run,
            role=Role.LEARNER,
            name=self.name,
            incarnation=self.incarnation,
            credential="",
            fingerprint=fingerprint,
            progress=self.progress(),
            digests=tuple("" for _ in self.versions),
        )

    def contribution(
        self, pull: training.PullFragment, *, steps: int | None = None
    ) -> training.Contribution:
        """What it answers a pull with: all of its steps since its base, or so many."""
        fragment = pull.fragment
        base = self.versions[fragment]
        assert base is not None, "it has adopted something"
        done = self.steps - self.marks[fragment] if steps is None else steps
        return training.Contribution(
            ticket=pull.ticket,
            fragment=fragment,
            base=base,
            steps=done,
            tokens=done * self.step_tokens,
            processed_tokens=self.steps * self.step_tokens,
            precision="float32",
            digest="",
        )


def recount(core: SyncerMemory) -> None:
    """Compare every index of the core with what it stands for, counted anew.

    `Bench` and the event model call it after every event, so that each test of a rule also shows
    that the rule left nothing out of date.
    """
    names = sorted(core.members.learners)
    assert core.names() == names
    index, learners = core.members.index, core.members.learners
    assert index.learners == {n for n in names if learners[n].role is Role.LEARNER}
    assert index.readers == {n for n in names if learners[n].reads}
    assert index.claimants == {n for n in names if learners[n].claims}
    assert index.asking == {n for n in names if learners[n].asking}
    ready = [name for name in names if unready_because(learners[name]) is None]
    pace = core.rounds.pace
    ranks = {n: (learners[n].phase not in TRAINING, -pace.credits.get(n, 0.0), n) for n in ready}
    assert pace.ranked == ranks
    assert pace.ranking == sorted(ranks.values())
    leases = core.durable.leases
    assert leases.granted_tokens == sum(h.quota_tokens for h in leases.holders.values())
    for round_ in core.rounds.open.values():
        assert not round_.arrived.keys() & round_.excused.keys()
        assert round_.arrived.keys() | round_.excused.keys() <= round_.asked.keys()
        assert round_.unawaited.keys() <= set(round_.waiting)
        assert not round_.adopting.keys() & round_.asked.keys()
        awaited = set(round_.waiting) - round_.unawaited.keys() | round_.adopting.keys()
        assert round_.awaited == bool(awaited)
    if core.rounds.barren is not None and core.rounds.barren == core.durable.round and core.seeded:
        assert core.eligible(core.rounds.barren % core.fragments) == []
    if core.closing is None:
        shown = tokens_used_up(core)
        core.journal.forget_unspent()
        assert shown == tokens_used_up(core)


class Bench:
    """A syncer's state with the actions of its last events."""

    def __init__(
        self,
        settings: RunSettings | None = None,
        *,
        fragments: int = 2,
        durable: Durable | None = None,
        epoch: int = 1,
        initial: bool = False,
        returns_s: float | None = None,
        levels: Sequence[Level] = EXACT,
    ) -> None:
        self.settings = settings or RunSettings(interval_steps=4, fragments=fragments)
        self.fragments = fragments
        self.now_s = 0.0
        begun = durable or fresh(self.settings, fragments=fragments, shards=8, epoch=epoch)
        begun.epoch = epoch
        self.state = SyncerState(
            self.settings,
            FINGERPRINT,
            begun,
            now_s=0.0,
            initial=initial,
            returns_s=returns_s,
            levels=levels,
        )
        self.actions: list[actions.Action] = []
        self.learners: dict[str, Learner] = {}
        self.connections: dict[str, int] = {}

    @property
    def core(self) -> SyncerMemory:
        return self.state.core

    @property
    def seeding(self) -> Seeding:
        seeding = self.core.versions.seeding
        assert seeding is not None, "a learner was asked for version 0"
        return seeding

    @property
    def closing(self) -> Closing:
        assert self.core.closing is not None, "the run closes"
        return self.core.closing

    def record(self, name: str) -> LearnerRecord:
        return self.core.members.learners[LearnerName(name)]

    def holder(self, name: str) -> Holder:
        return self.core.durable.leases.holders[LearnerName(name)]

    def do(self, event: events.Event, *, after_s: float = 0.0) -> list[actions.Action]:
        self.now_s += after_s
        before = self.core.changes
        self.actions = self.state.handle(event, now_s=self.now_s)
        assert self.core.changes >= before, "rules come to rest by it"
        recount(self.core)
        return self.actions

    def tick(self, after_s: float) -> list[actions.Action]:
        return self.do(events.Ticked(), after_s=after_s)

    # --- what a learner does ------------------------------------------------------------------

    def hello(
        self, name: str, *, counter: int = 1, connection: int | None = None
    ) -> list[actions.Action]:
        learner = self.learners.get(name)
        if learner is None or learner.incarnation.counter != counter:
            learner = Learner(name, self.fragments, counter)
            self.learners[name] = learner
        number = connection or max([0, *self.connections.values()]) + 1
        self.connections[name] = number
        return self.open(learner, number)

    def observe(self, name: str, *, counter: int = 90, connection: int = CONNECTION) -> None:
        """An observer opens a link."""
        learner = Learner(name, self.fragments, counter)
        learner.phase, learner.batch_tokens, learner.step_time_s = Phase.STARVED, 0, 0.0
        self.open(learner, connection, role=Role.OBSERVER)

    def open(
        self, learner: Learner, connection: int, *, trusted: bool = True, **changed: object
    ) -> list[actions.Action]:
        """A learner says hello over a link of this number, with some fields changed."""
        hello = replace(self.hello_of(learner), **changed)  # type: ignore[arg-type]
        return self.do(events.LinkOpened(hello, connection, trusted=trusted))

    def hello_of(self, learner: Learner) -> training.Hello:
        return learner.hello(self.settings.run, FINGERPRINT)

    def drop(self, name: str) -> list[actions.Action]:
        return self.do(events.LinkClosed(name, self.connections[name]))

    def report(self, name: str) -> list[actions.Action]:
        learner = self.learners[name]
        return self.do(Received(learner.progress(), self.connections[name]))

    def step(self, name: str, steps: int = 1) -> list[actions.Action]:
        self.learners[name].steps += steps
        return self.report(name)

    def answer(
        self,
        pull: training.PullFragment,
        *,
        check: Check = GOOD,
        steps: int | None = None,
        **changed: object,
    ) -> None:
        """A learner's contribution arrives, or one that differs from it in some fields."""
        contribution = replace(self.contribution(pull, steps=steps), **changed)  # type: ignore[arg-type]
        connection = self.connections[pull.ticket.name]
        self.do(events.ContributionArrived(contribution, check, connection))

    def decline(self, pull: training.PullFragment, reason: str = "nothing") -> list[actions.Action]:
        declined = training.ContributionDeclined(pull.ticket, pull.fragment, reason)
        return self.do(Received(declined, self.connections[pull.ticket.name]))

    def contribution(
        self, pull: training.PullFragment, *, steps: int | None = None
    ) -> training.Contribution:
        return self.learners[pull.ticket.name].contribution(pull, steps=steps)

    # --- what the world does ------------------------------------------------------------------

    def journal(self) -> list[actions.Action]:
        followed: list[actions.Action] = []
        for _ in range(100):
            if not self.core.journal.journalling:
                break
            followed += self.do(events.JournalFinished(self.core.journal.journalling[-1][0]))
        self.actions = followed
        return followed

    def merge(
        self, cosine: float = 0.0, increment: events.IncrementFacts | None = None
    ) -> actions.BeginMerge:
        """The merge that was begun by the last event is computed; so it turned to the last one."""
        (begun,) = self.of(actions.BeginMerge)
        count = len(begun.parts)
        ones = (1.0,) * count
        facts = events.MergeFacts(str(begun.target), ones, ones, 1.0, cosine, increment)
        self.do(events.MergeFinished(begun.fragment, begun.round, facts))
        return begun

    def commit(
        self,
        pulls: Sequence[training.PullFragment] = (),
        increment: events.IncrementFacts | None = None,
    ) -> actions.BeginMerge:
        for pull in pulls:
            self.answer(pull)
        begun = self.merge(increment=increment)
        self.journal()
        return begun

    def view(
        self, name: str, status: Status, *, counter: int = 1, epoch: int = 1
    ) -> list[actions.Action]:
        member = Member(LearnerName(name), Incarnation(1, counter), status)
        return self.do(MembershipChanged(epoch, (member,)))

    def seed(self) -> None:
        """The learner that was asked sends version 0; it becomes durable; all adopt it."""
        epoch, seeding = self.core.durable.epoch, self.seeding
        for index in map(FragmentIndex, range(self.fragments)):
            seed = training.FragmentSeed(epoch, index, seeding.name, seeding.incarnation, "")
            self.do(events.SeedArrived(seed, intact=True))
        self.journal()
        for name in sorted(self.learners):
            self.adopt(name)

    def adopt(self, name: str) -> list[actions.Action]:
        """A learner adopts every committed version, steps from now on, and says so."""
        learner = self.learners[name]
        learner.phase = Phase.STEPPING
        for index, version in enumerate(self.core.versions.published):
            if version is not None and learner.versions[index] != version.version:
                account = self.core.durable.ledger.books[learner.name].accounts[index]
                learner.adopt(index, version.version, account.unsettled)
        return self.report(name)

    # --- what the state wants -----------------------------------------------------------------

    def of(self, kind: type[T]) -> list[T]:
        return [action for action in self.actions if isinstance(action, kind)]

    def sent(self, kind: type[T]) -> list[T]:
        return [a.message for a in self.of(actions.Send) if isinstance(a.message, kind)]

    def pulls(self) -> list[training.PullFragment]:
        return self.sent(training.PullFragment)

    def receivers(self, fragment: int) -> list[str]:
        names = {number: name for name, number in self.connections.items()}
        sent = [a for a in self.of(actions.SendValue) if a.message.fragment == fragment]
        return sorted(names[action.connection] for action in sent)

    def updates(self) -> list[training.FragmentUpdate]:
        return [action.message for action in self.of(actions.SendValue)]

    def dismissed(self) -> list[object]:
        return [action.message for action in self.of(actions.Dismiss)]

    def last_word(self, kind: type[T]) -> T:
        """The only dismissal of the last events."""
        (word,) = self.dismissed()
        assert isinstance(word, kind)
        return word

    def fates(self) -> list[tuple[Fate, str]]:
        return [(entry.fate, entry.reason or "") for entry in self.entries(FateTold)]

    def entries(self, kind: type[E]) -> list[E]:
        return [action.entry for action in self.of(Record) if isinstance(action.entry, kind)]

    def written(self) -> list[actions.WriteJournal]:
        return self.of(actions.WriteJournal)


def seeded(
    *names: str,
    settings: RunSettings | None = None,
    fragments: int = 2,
    levels: Sequence[Level] = EXACT,
) -> Bench:
    """A run with these learners, all stepping on version 0 with quota granted."""
    bench = Bench(settings, fragments=fragments, levels=levels)
    for name in names:
        bench.hello(name)
    bench.seed()
    bench.journal()
    return bench


def opened(bench: Bench) -> list[training.PullFragment]:
    """Learners step one after the other until a round opens; returns its pulls."""
    for _ in range(100):
        for name in sorted(bench.learners):
            bench.step(name)
            if bench.pulls():
                return bench.pulls()
    raise AssertionError("no round opens")
