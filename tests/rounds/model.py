"""An event model of rounds: the real states of syncer and learners over a heap of future events.

Nothing else is real. A step takes a drawn time and trains nothing; a value is its version; links
have a latency; the supervisor is three lines. It answers, in milliseconds, what the rules of a
round do to the interval, to participation and to progress.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from islands.config import RunSettings
from islands.learner import actions as learner_actions
from islands.learner import events as learner_events
from islands.learner.state import LearnerState
from islands.messages import (
    FragmentSeed,
    FragmentUpdate,
    Hello,
    Incarnation,
    Joined,
    LearnerName,
    Lease,
    Member,
    MembershipChanged,
    Progress,
    Status,
    SyncerAddress,
    Version,
)
from islands.syncer import actions as syncer_actions
from islands.syncer import events as syncer_events
from islands.syncer.core import Durable
from islands.syncer.fate import Check
from islands.syncer.state import SyncerState, fresh

FINGERPRINT = "model"
BATCH_TOKENS = 100


@dataclass(slots=True)
class FakeCompute:
    """Steps that only take time. Totals are over the life of the process."""

    step_s: float
    noise: float
    steps: int = 0
    tokens: int = 0
    until_tokens: int = 0
    running: bool = False
    leases: tuple[Lease, ...] = ()
    plan: tuple[int, ...] = ()
    commands: list[learner_actions.Action] = field(default_factory=list)
    bases: dict[int, Version] = field(default_factory=dict)
    alive: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """Times of the model, in seconds."""

    latency_s: float = 0.001
    merge_s: float = 0.001
    journal_s: float = 0.001


class Model:
    """A run: `step_times` gives each learner's mean seconds per step."""

    def __init__(
        self,
        settings: RunSettings,
        step_times: list[float],
        *,
        fragments: int | None = None,
        noise: float = 0.1,
        seed: int = 0,
        link: Link | None = None,
    ) -> None:
        """Start the syncer and all learners at once, with random phases."""
        self.settings = settings
        self.fragments = fragments or settings.fragments
        self.link = link or Link()
        self.now_s = 0.0
        self.rng = random.Random(seed)
        self.tape: list[tuple[float, str, dict[str, object]]] = []
        self.finished: str | None = None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._admissions = 0
        self._connections = 0
        self._noise = noise
        self.learners: dict[LearnerName, LearnerState] = {}
        self.computes: dict[LearnerName, FakeCompute] = {}
        self.connected: dict[int, LearnerName] = {}
        self.durable = fresh(settings, fragments=self.fragments, shards=64, epoch=1)
        self.syncer = self._start_syncer(self.durable)
        self.syncer_up = True
        for index, step_s in enumerate(step_times):
            self.add_learner(f"learner-{index}", step_s)
        self._at(0.0, self._tick)

    # --- the world ----------------------------------------------------------------------------

    def _at(self, delay_s: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._count, call))

    def run(self, seconds: float) -> None:
        """Let the model run for so many seconds, or until the run is finished."""
        end_s = self.now_s + seconds
        while self._heap and self._heap[0][0] <= end_s and self.finished is None:
            self.now_s, _, call = heapq.heappop(self._heap)
            call()
        self.now_s = end_s if self.finished is None else self.now_s

    def _tick(self) -> None:
        if self.syncer_up:
            self._syncer(syncer_events.Ticked())
        for name in list(self.learners):
            self._learner(name, learner_events.Ticked())
        self._at(0.25, self._tick)

    def add_learner(self, text: str, step_s: float) -> None:
        """A process of this name starts."""
        name = LearnerName(text)
        self.learners[name] = LearnerState(self.settings, name, FINGERPRINT, self.fragments)
        compute = FakeCompute(step_s, self._noise)
        self.computes[name] = compute
        self._admit(name)
        self._at(self.rng.uniform(0, step_s), lambda: self._ready(name, compute))

    def _ready(self, name: LearnerName, compute: FakeCompute) -> None:
        if compute.alive:
            self._learner(name, learner_events.TrainerReady(BATCH_TOKENS))

    def _admit(self, name: LearnerName) -> None:
        self._admissions += 1
        joined = Joined(
            self.settings.run,
            name,
            Incarnation(1, self._admissions),
            "",
            1,
            (SyncerAddress("syncer"),),
        )
        self._learner(name, learner_events.SupervisorLinkChanged(up=True))
        self._learner(name, learner_events.FromSupervisor(joined))

    def kill_learner(self, text: str) -> None:
        """Its process is gone; the supervisor evicts it."""
        name = LearnerName(text)
        incarnation = self.learners.pop(name).incarnation
        assert incarnation is not None
        self.computes.pop(name).alive = False
        for connection in [c for c, n in self.connected.items() if n == name]:
            del self.connected[connection]
            self._syncer(syncer_events.LinkClosed(name, connection))
        member = Member(name, incarnation, Status.EVICTED)
        self._syncer(syncer_events.MembershipArrived(MembershipChanged(1, (member,))))

    def restart_syncer(self) -> None:
        """The syncer dies and starts again from what it journalled; learners redial."""
        self.connected.clear()
        self.syncer = self._start_syncer(self.durable)
        for name in list(self.learners):
            self._learner(name, learner_events.SyncerLinkChanged(up=False))
            self._at(self.link.latency_s, lambda name=name: self._dial(name))  # type: ignore[misc]

    def _start_syncer(self, durable: Durable) -> SyncerState:
        return SyncerState(self.settings, FINGERPRINT, durable, now_s=self.now_s)

    # --- the syncer ---------------------------------------------------------------------------

    def _syncer(self, event: syncer_events.Event) -> None:
        for action in self.syncer.handle(event, now_s=self.now_s):
            self._perform_for_syncer(action)
        deadline_s = self.syncer.deadline_s(self.now_s)
        if deadline_s > self.now_s:
            self._at(deadline_s - self.now_s, lambda: self._deadline(deadline_s))

    def _deadline(self, deadline_s: float) -> None:
        if self.syncer.deadline_s(self.now_s) <= deadline_s:
            self._syncer_quiet(syncer_events.Ticked())

    def _syncer_quiet(self, event: syncer_events.Event) -> None:
        for action in self.syncer.handle(event, now_s=self.now_s):
            self._perform_for_syncer(action)

    def _perform_for_syncer(self, action: syncer_actions.Action) -> None:
        syncer = self.syncer
        match action:
            case syncer_actions.Send(connection, message):
                self._deliver(connection, learner_events.FromSyncer(message))
            case syncer_actions.SendValue(connection, message):
                self._deliver(connection, learner_events.UpdateArrived(message, intact=True))
            case syncer_actions.Dismiss(connection, message):
                self._deliver(connection, learner_events.FromSyncer(message))
            case syncer_actions.BeginMerge(fragment, number, _, target, parts):
                n = len(parts)
                facts = syncer_events.MergeFacts(str(target), (1.0,) * n, (1.0,) * n, 1.0, 0.0)
                done = syncer_events.MergeFinished(fragment, number, facts)
                self._later(self.link.merge_s, syncer, done)
            case syncer_actions.WriteJournal(sequence):
                self._later(self.link.journal_s, syncer, syncer_events.JournalFinished(sequence))
            case syncer_actions.Record(kind, fields):
                self.tape.append((self.now_s, kind, fields))
            case syncer_actions.FinishRun(reason):
                self.finished = reason
            case syncer_actions.DropContribution() | syncer_actions.InstallSeed():
                pass

    def _later(self, delay_s: float, syncer: SyncerState, event: syncer_events.Event) -> None:
        self._at(delay_s, lambda: self._syncer(event) if self.syncer is syncer else None)

    def _deliver(self, connection: int, event: learner_events.Event) -> None:
        name = self.connected.get(connection)
        if name is not None:
            target = self.learners[name]
            self._at(
                self.link.latency_s,
                lambda: self._learner(name, event) if self.learners.get(name) is target else None,
            )

    # --- the learners -------------------------------------------------------------------------

    def _dial(self, name: LearnerName) -> None:
        if name in self.learners:
            self._connections += 1
            self.connected[self._connections] = name
            self._learner(name, learner_events.SyncerLinkChanged(up=True))

    def _learner(self, name: LearnerName, event: learner_events.Event) -> None:
        learner = self.learners.get(name)
        if learner is None:
            return
        for action in learner.handle(event, now_s=self.now_s):
            self._perform_for_learner(name, action)

    def _perform_for_learner(self, name: LearnerName, action: learner_actions.Action) -> None:
        compute = self.computes[name]
        match action:
            case learner_actions.DialSyncer():
                self._dial(name)
            case learner_actions.ToSyncer(message):
                self._to_syncer(name, message)
            case learner_actions.Contribute(message):
                check = Check(
                    schema_ok=True, digest_ok=True, finite=True, norm=float(message.steps) ** 0.5
                )
                self._up(name, lambda c: syncer_events.ContributionArrived(message, check, c))
            case learner_actions.OfferSeed(request, incarnation):
                seed = FragmentSeed(request.epoch, request.fragment, name, incarnation, "seed")
                self._up(name, lambda _: syncer_events.SeedArrived(seed, intact=True))
            case learner_actions.PlanSnapshots(fragments):
                compute.plan = fragments
                self._idle_boundary(name)
            case learner_actions.AdoptValue() | learner_actions.AllowSteps():
                compute.commands.append(action)
                self._idle_boundary(name)
            case _:
                pass

    def _to_syncer(self, name: LearnerName, message: object) -> None:
        match message:
            case Hello():
                self._up(name, lambda c: syncer_events.LinkOpened(message, c, trusted=True))
            case Progress():
                self._up(name, lambda c: syncer_events.ProgressArrived(message, c))
            case learner_actions.ContributionDeclined():
                self._up(name, lambda _: syncer_events.PullDeclined(message))
            case _:
                pass

    def _up(self, name: LearnerName, make: Callable[[int], syncer_events.Event]) -> None:
        mine = [c for c, n in self.connected.items() if n == name]
        if mine:
            connection = mine[-1]

            def arrive() -> None:
                if connection in self.connected:
                    self._syncer(make(connection))

            self._at(self.link.latency_s, arrive)

    def _idle_boundary(self, name: LearnerName) -> None:
        if not self.computes[name].running:
            self._at(0.0, lambda: self._idle_now(name))

    def _idle_now(self, name: LearnerName) -> None:
        compute = self.computes.get(name)
        if compute is not None and not compute.running:
            self._boundary(name, compute)

    def _boundary(self, name: LearnerName, compute: FakeCompute) -> None:
        """Between two steps: commands, snapshots, then the next step if there is quota."""
        told_to_stop = False
        while compute.commands:
            command = compute.commands.pop(0)
            if isinstance(command, learner_actions.AdoptValue):
                compute.bases[command.fragment] = command.version
                adopted = learner_events.ValueAdopted(
                    command.fragment, command.version, compute.steps, compute.tokens
                )
                self._learner(name, adopted)
            elif isinstance(command, learner_actions.AllowSteps):
                compute.until_tokens, compute.leases = command.until_tokens, command.leases
                told_to_stop = True
        for index in compute.plan:
            if index in compute.bases:
                taken = learner_events.SnapshotTaken(
                    index,  # type: ignore[arg-type]
                    compute.bases[index],
                    compute.steps,
                    compute.tokens,
                )
                self._at(0.0, lambda taken=taken: self._learner(name, taken))  # type: ignore[misc]
        was_running, compute.running = compute.running, False
        if compute.tokens + BATCH_TOKENS <= compute.until_tokens and compute.leases:
            compute.running = True
            duration_s = max(0.1, self.rng.gauss(1.0, compute.noise)) * compute.step_s
            self._at(duration_s, lambda: self._stepped(name, compute, duration_s))
        elif was_running or told_to_stop:
            self._learner(name, learner_events.Idled(compute.steps, compute.tokens, compute.leases))

    def _stepped(self, name: LearnerName, compute: FakeCompute, duration_s: float) -> None:
        if not compute.alive:
            return
        compute.steps += 1
        compute.tokens += BATCH_TOKENS
        step = learner_events.StepFinished(
            compute.steps, compute.tokens, duration_s, finite=True, leases=compute.leases
        )
        self._learner(name, step)
        self._boundary(name, compute)

    # --- what came of it ----------------------------------------------------------------------

    def merges(self, since_s: float = 0.0) -> list[dict[str, object]]:
        """Tape entries of merges since a time."""
        return [fields for at_s, kind, fields in self.tape if kind == "merged" and at_s >= since_s]

    def effective_interval(self, since_s: float, steps: float) -> float:
        """H as it came out: steps of a learner per merge of one fragment."""
        return steps * self.fragments / len(self.merges(since_s))

    def participation(self, since_s: float) -> float:
        """Contributions merged per learner and merge."""
        merges = self.merges(since_s)
        arrived = sum(len(m["participants"]) for m in merges)  # type: ignore[arg-type]
        present = sum(int(str(m["learners"])) for m in merges)
        return arrived / present


def updates_of(action: syncer_actions.Action) -> FragmentUpdate | None:
    """The update in an action, if it sends one."""
    return action.message if isinstance(action, syncer_actions.SendValue) else None
