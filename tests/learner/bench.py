"""The harness of a learner: its state with the actions of its last event, and copies by hand."""

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from islands.learner.boundary import Boundary, PendingPiece, PendingSnapshot, Running, TrainerData
from islands.model.interfaces import Trainer
from islands.protocol import sessions
from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Phase,
    Ticket,
    Version,
)
from islands.protocol.learner import events
from islands.protocol.learner.actions import Action, Contribute
from islands.protocol.learner.state import LearnerState
from islands.protocol.messages import training
from islands.protocol.messages.membership import Evicted, Joined
from islands.protocol.settings.choices import Adoption, Precision
from islands.protocol.settings.run import RunSettings

A = TypeVar("A", bound=Action)
M = TypeVar("M")

ANA = LearnerName("ana")
BATCH = 10
NO_BYTES = memoryview(b"")
LEASES = (Lease(0, 0, 0), Lease(0, 1, 0))
P = 2
SETTINGS = RunSettings(interval_steps=P, fragments=P)
"""H = P, so that every step is reported."""


class Bench:
    """A learner's state with the actions of its last event."""

    def __init__(self, settings: RunSettings = SETTINGS) -> None:
        """A process that just started."""
        self.state = LearnerState(settings, ANA, "bench", P)
        self.actions: list[Action] = []
        self.now_s = 0.0
        self.steps = 0

    def do(self, event: events.Event, *, after_s: float = 0.0) -> list[Action]:
        self.now_s += after_s
        self.actions = self.state.handle(event, now_s=self.now_s)
        return self.actions

    def hear(self, message: object) -> list[Action]:
        """The syncer says something."""
        return self.do(events.FromSyncer(message))

    def evict(self, counter: int = 1) -> list[Action]:
        """The syncer ends the incarnation of this number."""
        return self.hear(Evicted(ANA, Incarnation(1, counter), "silent"))

    def stop(self) -> list[Action]:
        """Compute has come to its stop, and knows all that it was told."""
        tokens, order = self.steps * BATCH, self.state.compute.order
        return self.do(events.Idled(self.steps, tokens, LEASES, order))

    def of(self, kind: type[A]) -> list[A]:
        """Actions of a kind that the last event asked for."""
        return [action for action in self.actions if isinstance(action, kind)]

    def sent(self, kind: type[M]) -> list[M]:
        """Messages of a kind that the last event sent to anybody."""
        outgoing = sessions.ToSyncer | sessions.ToSupervisor
        messages = [action.message for action in self.actions if isinstance(action, outgoing)]
        return [message for message in messages if isinstance(message, kind)]

    def contributed(self) -> list[training.Contribution]:
        return [action.message for action in self.of(Contribute)]

    def admit(self, counter: int = 1) -> None:
        where = ("syncer",)
        joined = Joined("run", ANA, Incarnation(1, counter), "signed", 1, where)
        self.do(events.FromSupervisor(joined))

    def update(
        self,
        fragment: int,
        number: int,
        *,
        epoch: int = 1,
        intact: bool = True,
        round_: int | None = None,
        merged: training.Merged | None = None,
    ) -> None:
        """A published value arrives: of the round before its number, where no other is given."""
        index, version = FragmentIndex(fragment), Version(epoch, number)
        round_ = number - 1 if round_ is None else round_
        message = training.FragmentUpdate(epoch, index, version, round_, "", 4.0, merged)
        self.do(sessions.UpdateArrived(message, intact, NO_BYTES))

    def adopt(self, fragment: int, number: int, *, epoch: int = 1) -> None:
        """A published value arrives and is adopted at a boundary."""
        self.update(fragment, number, epoch=epoch)
        version = Version(epoch, number)
        tokens, incarnation = self.steps * BATCH, self.state.incarnation
        assert incarnation is not None
        event = events.ValueAdopted(
            FragmentIndex(fragment), version, self.steps, tokens, incarnation
        )
        self.do(event)

    def adopt_all(self, number: int = 0) -> None:
        for fragment in range(P):
            self.adopt(fragment, number)

    def grant(self, quota: int, *, counter: int = 1, epoch: int = 1) -> None:
        self.hear(training.LeaseGranted(epoch, Incarnation(1, counter), quota, LEASES))

    def step(self, *, finite: bool = True) -> None:
        self.steps += 1
        tokens = self.steps * BATCH
        self.do(events.StepFinished(self.steps, tokens, 0.1, finite=finite, leases=LEASES))

    def snapshot(self, fragment: int, number: int = 0) -> None:
        base = Version(1, number)
        index = FragmentIndex(fragment)
        self.do(events.SnapshotTaken(index, base, self.steps, self.steps * BATCH, NO_BYTES))

    def pull(
        self,
        fragment: int,
        round_: int,
        *,
        epoch: int = 1,
        counter: int = 1,
        precision: Precision = Precision.FLOAT32,
    ) -> None:
        ticket = Ticket(epoch, round_, ANA, Incarnation(1, counter))
        index = FragmentIndex(fragment)
        self.hear(training.PullFragment(ticket, index, Version(1, 0), precision))


def started(settings: RunSettings = SETTINGS) -> Bench:
    """Compiled, admitted, linked; nothing adopted yet."""
    bench = Bench(settings)
    bench.do(sessions.SupervisorLinkChanged(up=True))
    bench.admit()
    bench.do(sessions.SyncerLinkChanged(up=True))
    bench.hear(training.Welcome(1, (None, None)))
    bench.do(events.TrainerReady(BATCH))
    return bench


def stepping_by(settings: RunSettings) -> Bench:
    """A learner of two fragments that has adopted version 1.0 of both, and may step."""
    bench = started(settings)
    bench.adopt_all()
    bench.grant(10_000)
    return bench


def stepping(
    adoption: Adoption = Adoption.OVERWRITE, precision: Precision = Precision.FLOAT32
) -> Bench:
    """On version 1.0 of both fragments, with quota, after two steps."""
    bench = stepping_by(replace(SETTINGS, adoption=adoption, precision=precision))
    bench.step()
    bench.step()
    return bench


def phase_of(bench: Bench) -> Phase:
    return bench.state.phase


def stand_still(bench: Bench) -> None:
    """Compute has reached its limit of steps."""
    tokens, order = bench.steps * BATCH, bench.state.compute.order
    bench.do(events.Idled(bench.steps, tokens, LEASES, order, waiting=True))


@dataclass
class Copies:
    """Copies to the host that a boundary has begun; there is room for any number."""

    snapshots: list[PendingSnapshot] = field(default_factory=list)
    pieces: list[PendingPiece] = field(default_factory=list)

    def may_begin(self, fragment: FragmentIndex, steps: int) -> bool:
        del fragment, steps
        return True

    def await_snapshot(self, taken: PendingSnapshot) -> None:
        self.snapshots.append(taken)

    def await_piece(self, taken: PendingPiece) -> None:
        self.pieces.append(taken)


class TrainedBoundary(Boundary):
    """The boundary of a trainer, with the steps that it allows."""

    def __init__(self, trainer: Trainer, settings: RunSettings, **ports: Any) -> None:  # noqa: ANN401
        self.trainer, self.settings, self.batches = trainer, settings, TrainerData(trainer)
        super().__init__(trainer, settings, self.batches, **ports)

    def dispatch(self) -> Running:
        """Take the step that `has_work` found."""
        rate = self.settings.learning_rate_at(self.clock)
        return self.stepped(self.trainer.step(self.batches.take(), rate))
