"""A boundary between two steps: it carries out commands, and says whether data allow a step.

In order, it carries out the commands that arrived, then takes snapshots of the planned fragments,
then pieces of moments that a peer waits for. It waits for the device only to read a value or load
moments, once before the first step. Totals count dispatched steps over the life of the process.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol, TypeVar, assert_never

import numpy as np
from numpy.typing import NDArray

from islands.model.interfaces import Model, Snapshot, Trainer
from islands.numerics.codecs import decode
from islands.protocol.errors import InvariantError
from islands.protocol.gossip import actions as gossip_actions
from islands.protocol.gossip.events import WorkGathered
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner import actions, events
from islands.protocol.learner.schedule import clock_of
from islands.protocol.messages.training import Merged
from islands.protocol.ranges import Ranges
from islands.protocol.settings.choices import SnapshotPrecision
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.batch_source import BatchSource, key_of
from islands.tasks.data.shards import ShardKey
from messaging.codec.tensors import as_buffer


class StepData:
    """The data of steps, of so many tokens each; only subclasses read the leases.

    `leases` are those that are held, with the positions of the steps that were counted.
    """

    def __init__(self, tokens: int) -> None:
        self.leases: tuple[Lease, ...] = ()
        self._tokens = tokens

    def follow(self, leases: Sequence[Lease]) -> None:
        """Replace the leases; positions reached here outrank older ones that come back."""
        self.leases = tuple(leases)

    def next_tokens(self) -> int | None:
        """Return the tokens of the next step, or the least of one whose batch may yet come.

        None: the leases have no data for a step.
        """
        return self._tokens

    def ready(self) -> bool:
        """Read the next batch unless it was read; return whether there is one."""
        return True

    @property
    def expecting(self) -> bool:
        """Whether there is no batch, and one may come without another lease."""
        return False

    def booked(self) -> None:
        """Count what was taken for the last step."""


class TrainerData(StepData):
    """The batches of the leases, as a trainer reads them; by default when they are needed."""

    def __init__(self, trainer: Trainer, source: BatchSource | None = None) -> None:
        super().__init__(1)
        self._tokens_of = trainer.tokens
        self._source = source or BatchSource(trainer.batches)
        self._reading: ShardKey | None = None
        self._batch: object | None = None
        self._position = 0

    def follow(self, leases: Sequence[Lease]) -> None:
        reached = {key_of(lease): lease for lease in self.leases}
        self.leases = tuple(max(lease, reached.get(key_of(lease), lease)) for lease in leases)
        if not any(
            key_of(lease) == self._reading and lease.position < self._position
            for lease in self.leases
        ):
            self._batch = None
        self._source.follow([lease for lease in self.leases if not lease.done])

    def next_tokens(self) -> int | None:
        if self._batch is None:
            self._fetch()
        if self._batch is None:
            return super().next_tokens() if self.expecting else None
        return self._tokens_of(self._batch)

    def ready(self) -> bool:
        return self._batch is not None

    @property
    def expecting(self) -> bool:
        return self._batch is None and self._source.expecting

    def take(self) -> object:
        batch, self._batch = self._batch, None
        assert batch is not None, "the boundary was not asked"
        return batch

    def booked(self) -> None:
        self._reached(done=False)

    def _fetch(self) -> None:
        while (taken := self._source.take()) is not None:  # each turn ends a lease, or returns
            self._reading, self._position = taken.shard, taken.position
            if taken.batch is not None:
                self._batch = taken.batch
                return
            self._reached(done=True)

    def _reached(self, *, done: bool) -> None:
        self.leases = tuple(
            Lease(lease.pass_index, lease.shard, self._position, done)
            if key_of(lease) == self._reading
            else lease
            for lease in self.leases
        )


T = TypeVar("T", bound=np.generic)

EngineEvent = events.ValueAdopted | events.ValueRead | events.MomentsLoaded | WorkGathered

NEVER = (-1, -1)

PIECES_PER_BOUNDARY = 2
"""Pieces of moments that one boundary copies, so that a large state is spread over many."""


def part_of(value: NDArray[T], ranges: Ranges) -> NDArray[T]:
    """Return the elements of a flat value in some ranges; a view of it where they are one range."""
    if len(ranges) == 1:
        return value[slice(*ranges[0])]
    return np.concatenate([value[:0], *(value[start:stop] for start, stop in ranges)])


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A snapshot in transit to the host; that of a `round` is for neighbours."""

    fragment: FragmentIndex
    base: Version
    steps: int
    tokens: int
    snapshot: Snapshot
    round: int | None = None

    def on_host(self) -> events.SnapshotTaken:
        """Wait until the copy has ended; returns the event that reports it."""
        payload = self.snapshot.buffer()
        totals = self.steps, self.tokens
        return events.SnapshotTaken(self.fragment, self.base, *totals, payload, self.round)


@dataclass(frozen=True, slots=True)
class PendingPiece:
    """A piece of moments in transit to the host, for a peer."""

    piece: int
    asker: str
    snapshot: Snapshot

    def on_host(self) -> events.MomentsRead:
        return events.MomentsRead(self.piece, self.asker, self.snapshot.buffer())


class Dispatched(Protocol):
    """A step that was dispatched and that may not have finished."""

    def loss(self) -> float | None:
        """Wait until the step is done and return its loss; None if the loss is not known."""

    def metrics(self) -> dict[str, float]:
        """Return further figures of the step, once it is done, by name."""


@dataclass(frozen=True, slots=True)
class Running:
    """A step that was counted, with the totals and the lease positions after it."""

    step: Dispatched
    steps: int
    tokens: int
    leases: tuple[Lease, ...]


class Copier(Protocol):
    """Waits for copies to the host that were just dispatched, and reports them."""

    def may_begin(self, fragment: FragmentIndex, steps: int) -> bool:
        """Whether there is room for one more snapshot, at a boundary with this total of steps."""

    def await_snapshot(self, taken: PendingSnapshot) -> None: ...

    def await_piece(self, taken: PendingPiece) -> None: ...


class Boundary:
    """Carries out commands on a model between its steps, allows these, and counts them.

    After `has_work` found none, `waiting` says that only a pending merge keeps it from stepping,
    and `late` that only a batch does that has not been read yet. `report` receives an event for
    every command that has a result.
    """

    def __init__(
        self,
        model: Model,
        settings: RunSettings,
        data: StepData,
        *,
        report: Callable[[EngineEvent], None],
        copier: Copier,
    ) -> None:
        self.model = model
        self.data = data
        self.waiting = False
        self.late = False
        self.steps = 0
        self.tokens = 0
        self.order = 0
        self.resets = 0
        self.commands: deque[actions.EngineAction] = deque()
        self._settings = settings
        self._report = report
        self._copier = copier
        self._asked: deque[actions.ReadMoments] = deque()
        self._owed = False  # whether an `AllowSteps` has no answer yet
        self._reported: tuple[bool, bool] | None = (False, False)  # waiting and late
        self._next_tokens = 0
        self._clock = clock_of(settings, len(model.layout.fragments))
        self._until_tokens = 0
        self._until_steps: int | None = None
        self._plan = actions.PlanSnapshots(())
        self._bases: dict[int, Version] = {}
        self._began_at: dict[int, int] = {}
        self._merged: dict[int, tuple[int, int]] = {}
        self._incarnation: Incarnation | None = None
        self._taken_at: dict[int, tuple[int, Version]] = {}

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions of all fragments in order; empty until every fragment was adopted."""
        count = len(self.model.layout.fragments)
        whole = len(self._bases) == count
        return tuple(self._bases[index] for index in range(count)) if whole else ()

    @property
    def unread(self) -> bool:
        return bool(self._asked)

    @property
    def clock(self) -> float:
        return self._clock.at(self.steps)

    def has_work(self, *, wanted: bool = True) -> bool:
        """Return whether a step may be taken: quota, data and pending merges allow one.

        Without quota or leases, the values that were to be adopted later are adopted now. `wanted`
        says whether whoever steps would take one.
        """
        tokens = self.data.next_tokens()
        unused = tokens is not None and self.tokens + tokens <= self._until_tokens
        merging = self._until_steps is not None and self.steps >= self._until_steps
        self.waiting = unused and merging
        able = unused and not merging and wanted
        ready = able and self.data.ready()
        self.late = able and not ready and self.data.expecting
        if ready:
            self._next_tokens, self._owed, self._reported = tokens or 0, False, None
        while not (ready or self.waiting or self.late) and self.commands:
            self._perform(self.commands.popleft())
        return ready

    def stepped(self, step: Dispatched) -> Running:
        self.data.booked()
        self.steps += 1
        self.tokens += self._next_tokens
        return Running(step, self.steps, self.tokens, self.data.leases)

    def idled(self) -> events.Idled | None:
        """Return the event that no step follows, and why; None if that was reported before."""
        if not self._owed and self._reported == (self.waiting, self.late):
            return None
        self._owed, self._reported = False, (self.waiting, self.late)
        return events.Idled(
            self.steps, self.tokens, self.data.leases, self.order, self.waiting, self.late
        )

    def carry_out(self) -> None:
        for command in self._due():
            self._perform(command)
        plan = self._plan
        for fragment, at_steps in zip_longest(plan.fragments, plan.at_steps):
            self._take(fragment, at_steps)
        for _ in range(min(len(self._asked), PIECES_PER_BOUNDARY)):
            asked = self._asked.popleft()
            snapshot = self.model.read_moments(asked.piece)
            self._copier.await_piece(PendingPiece(asked.piece, asked.asker, snapshot))

    def _due(self) -> Iterator[actions.EngineAction]:
        """Yield the commands in their order, but for values that are to be adopted later."""
        later = []
        while self.commands:
            command = self.commands.popleft()
            if isinstance(command, actions.AdoptValue) and command.at_steps > self.steps:
                later.append(command)
            else:
                yield command
        self.commands.extend(later)

    def _perform(self, command: actions.EngineAction) -> None:
        if isinstance(command, gossip_actions.GossipEngineAction):
            self._gossip(command)
            return
        match command:
            case actions.AdoptValue():
                self._adopt(command)
            case actions.PlanSnapshots():
                self._plan = command
            case actions.AllowSteps(until_tokens, leases, order, until_steps):
                self.order, self._until_steps = order, until_steps
                self._until_tokens, self._owed = until_tokens, True
                self.data.follow(leases)
            case actions.ReadValue(request, incarnation):
                payload = as_buffer(self.model.base_of(request.fragment))
                self._report(events.ValueRead(request, incarnation, payload))
            case actions.ResetMoments():
                self.model.reset_moments()
                self.resets += 1
            case actions.ReadMoments():
                self._asked.append(command)
            case actions.LoadMoments(pieces):
                self._report(events.MomentsLoaded(self._load(pieces)))
            case _:
                assert_never(command)

    def _adopt(self, adopt: actions.AdoptValue) -> None:
        """Replace the base, and the local value too unless local work is to be carried over."""
        fragment = adopt.fragment
        if adopt.incarnation != self._incarnation:  # rounds and clock may count from another start
            self._incarnation = adopt.incarnation
            self._merged.clear()
            self._clock.begin_anew()
        news = adopt.merged if self._is_news(fragment, adopt.merged) else None
        if adopt.carry:
            self._carry_on(adopt, news)
        elif adopt.local_share:
            self.model.mix(fragment, _floats(adopt.payload), adopt.local_share)
            self._began_at[fragment] = self.steps
        else:
            self.model.adopt(fragment, _floats(adopt.payload))
            self._began_at[fragment] = self.steps
        self._bases[fragment] = adopt.version
        self._clock.carried(adopt.clock, epoch=adopt.epoch, steps=self.steps)
        self._report_adopted(fragment, adopt.version, adopt.incarnation, carried=adopt.carry)

    def _report_adopted(
        self, fragment: FragmentIndex, version: Version, who: Incarnation, *, carried: bool = False
    ) -> None:
        totals = self.steps, self.tokens
        self._report(events.ValueAdopted(fragment, version, *totals, who, carried))

    def _gossip(self, command: gossip_actions.GossipEngineAction) -> None:
        """Carry out a command of gossip, which changes no version that is held."""
        fragment = command.fragment
        match command:
            case gossip_actions.TakeShare(_, round_, clock):
                self._clock.carried(clock, epoch=0, steps=self.steps)
                self._copy(fragment, "float32", round_)
            case gossip_actions.AdoptMixed(_, steps_total):
                if steps_total == self.steps:  # avoid rounding errors
                    self.model.adopt(fragment, _floats(command.value))
                else:
                    gradient = _floats(command.gradient)
                    self.model.carry_on(fragment, _floats(command.value), gradient)
            case gossip_actions.TakeOver(_, clock):
                self._clock.carried(clock, epoch=0, steps=self.steps)
                self.model.adopt(fragment, _floats(command.value))
            case gossip_actions.HoldValue(_, version, incarnation):
                self._bases[fragment], self._began_at[fragment] = version, self.steps
                self._report_adopted(fragment, version, incarnation)
            case gossip_actions.ReturnToOrigin():
                gradient = _floats(command.gradient)
                self.model.carry_on(fragment, _floats(command.value), gradient)
                self._taken_at.pop(fragment, None)
                self._report(WorkGathered(fragment))
            case _:
                assert_never(command)

    def _is_news(self, fragment: FragmentIndex, merged: Merged | None) -> bool:
        """Whether this is the first value that contains a contribution.

        The state cannot tell: two such values may be adopted before it hears of either.
        """
        if merged is None or (merged.epoch, merged.round) <= self._merged.get(fragment, NEVER):
            return False
        self._merged[fragment] = merged.epoch, merged.round
        return True

    def _carry_on(self, adopt: actions.AdoptValue, merged: Merged | None) -> None:
        """Replace the base, and keep the local work that the new base does not contain."""
        fragment, sent = adopt.fragment, None
        if merged is not None:
            self._began_at[fragment] += merged.steps
            assert adopt.sent is not None, "what is merged was sent, and is kept until then"
            held = self.model.layout.fragments[fragment]
            settings = self._settings
            kept = adopt.sent_precision or settings.precision.of_snapshots
            whole = decode(adopt.sent, held.size, kept, held.averages, settings.top_k_share)
            sent = part_of(whole, self.model.share(fragment))
        lost = self._settings.feeds_back  # what the codec lost is in the local value, and stays
        if self._began_at[fragment] == self.steps and not lost:  # avoid rounding errors
            self.model.adopt(fragment, _floats(adopt.payload))
        else:
            self.model.carry_on(fragment, _floats(adopt.payload), sent)

    def _load(self, pieces: tuple[memoryview, ...]) -> bool:
        """Load moments from a peer or from disk; False if they do not fit or are not finite."""
        try:
            self.model.load_moments(pieces)
        except InvariantError:  # whoever wrote them made the mistake
            return False
        if not self.model.finite():
            self.model.reset_moments()
            return False
        return True

    def _take(self, fragment: FragmentIndex, at_steps: int | None) -> None:
        """Snapshot a fragment, unless nothing changed since the last one or there is no work.

        With a total of steps, one snapshot is taken at it, or at the first boundary after it.
        """
        base = self._bases.get(fragment)
        least_steps = self.steps if at_steps is None else at_steps
        taken_steps, of = self._taken_at.get(fragment, (-1, base))
        if base is None or self.steps < least_steps or (of == base and taken_steps >= least_steps):
            return
        if self._began_at[fragment] == self.steps:
            return
        if not self._copier.may_begin(fragment, self.steps):
            return
        self._taken_at[fragment] = (self.steps, base)
        self._copy(fragment, self._settings.precision.of_snapshots)

    def _copy(
        self, fragment: FragmentIndex, precision: SnapshotPrecision, round_: int | None = None
    ) -> None:
        base, snapshot = self._bases[fragment], self.model.snapshot(fragment, precision)
        taken = PendingSnapshot(fragment, base, self.steps, self.tokens, snapshot, round_)
        self._copier.await_snapshot(taken)


def _floats(payload: memoryview) -> NDArray[np.float32]:
    return np.frombuffer(payload, np.float32)
