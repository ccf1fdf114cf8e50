"""An event model of rounds: the real states of syncer and learners over a heap of future events.

A step takes a drawn time; links have a latency; the supervisor is a few lines.
Values are not numbers but proofs: a contribution is the range of its sender's steps that are in
it. So every merge is checked: it applies no step twice, and what a contribution says about itself
is what it is. The journal is honest: a restarted syncer knows what was durable, and no more.
"""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

from islands.learner.compute import SnapshotCopies
from islands.protocol import sessions
from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Lease,
    Phase,
    Status,
    Ticket,
    Version,
)
from islands.protocol.learner import actions as learner_actions
from islands.protocol.learner import events as learner_events
from islands.protocol.learner.state import LearnerState
from islands.protocol.messages import training
from islands.protocol.messages.membership import Join, Joined, Leave, Member, MembershipChanged
from islands.protocol.messages.training import StateOffer, StateRequest
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import actions as syncer_actions
from islands.protocol.syncer import events as syncer_events
from islands.protocol.syncer.journalling import Durable, fresh
from islands.protocol.syncer.plausibility import Check
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Line, Record
from islands.protocol.tape.round_entries import Merged
from tests.syncer.bench import recount

FINGERPRINT = "model"
BATCH_TOKENS = 100
NO_BYTES = memoryview(b"")
SHARDS = 64
SHARD_RECORDS = 40
MOMENTS = learner_events.TrainerMade("moments", 3)
TICK_S = 0.25
NOBODY_STEPPED = Received(
    training.Progress(
        LearnerName("nobody"), Incarnation(0, 0), Phase.STEPPING, 0, 0, 0.0, 0, 0, (), ()
    ),
    0,
)
"""What a syncer may hear that tells it nothing: a report of a learner that it does not know."""

GRANT_OF_NOBODY = learner_events.FromSyncer(training.LeaseGranted(0, Incarnation(0, 0), 0, ()))
"""What a learner may hear that changes nothing for it: a grant to another incarnation."""


@dataclass(frozen=True, slots=True)
class Work:
    """The payload of a contribution: steps of one process after `start`, up to `stop`."""

    process: int
    start: int
    stop: int


@dataclass(slots=True)
class FakeCompute:
    """Steps that only take time. Totals are over the life of the process."""

    process: int
    step_s: float
    noise: float
    shard_records: int = SHARD_RECORDS
    steps: int = 0
    tokens: int = 0
    until_tokens: int = 0
    running: bool = False
    leases: tuple[Lease, ...] = ()
    plan: tuple[FragmentIndex, ...] = ()
    commands: list[learner_actions.Action] = field(default_factory=list)
    bases: dict[int, Version] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    snapshots: dict[int, Work] = field(default_factory=dict)
    copies: SnapshotCopies = field(default_factory=SnapshotCopies)
    copied_s: float = 0.0
    taken: dict[int, tuple[Version, int]] = field(default_factory=dict)
    alive: bool = True
    order: int = 0

    def allow(self, until_tokens: int, leases: tuple[Lease, ...]) -> None:
        """Take new leases; positions reached here are newer than those that come back."""
        reached = {(lease.pass_index, lease.shard): lease for lease in self.leases}
        self.until_tokens = until_tokens
        self.leases = tuple(
            max(lease, reached.get((lease.pass_index, lease.shard), lease)) for lease in leases
        )

    def obey(
        self, command: learner_actions.Action, payload: memoryview
    ) -> learner_events.Event | None:
        """Do what a learner wants at a boundary; returns the event of its completion, if any."""
        match command:
            case learner_actions.AllowSteps():
                self.order = command.order
                self.allow(command.until_tokens, command.leases)
            case learner_actions.AdoptValue(fragment, version):
                self.bases[fragment], self.marks[fragment] = version, self.steps
                done = self.steps, self.tokens, command.incarnation
                return learner_events.ValueAdopted(fragment, version, *done)
            case learner_actions.ReadValue(request, incarnation):
                return learner_events.ValueRead(request, incarnation, payload)
            case learner_actions.ReadMoments(piece, asker):
                return learner_events.MomentsRead(piece, asker, payload)
            case learner_actions.LoadMoments() | learner_actions.LoadCheckpoint():
                return learner_events.MomentsLoaded(taken=True)
            case _:
                pass
        return None

    def may_step(self) -> bool:
        enough = self.tokens + BATCH_TOKENS <= self.until_tokens
        return enough and any(not lease.done for lease in self.leases)

    def read(self) -> None:
        for index, lease in enumerate(self.leases):
            if not lease.done:
                position = lease.position + 1
                done = position == self.shard_records
                moved = Lease(lease.pass_index, lease.shard, position, done)
                self.leases = (*self.leases[:index], moved, *self.leases[index + 1 :])
                return


@dataclass(frozen=True, slots=True)
class Link:
    """Times of the model, in seconds; `copy_s` of one snapshot from device to host."""

    latency_s: float = 0.001
    merge_s: float = 0.001
    journal_s: float = 0.001
    copy_s: float = 0.0


def for_peer(
    sender: str, message: StateRequest | StateOffer, payload: memoryview
) -> learner_events.Event:
    """What a learner hears from another one."""
    if isinstance(message, StateRequest):
        return learner_events.StateRequested(sender, message)
    return learner_events.PieceArrived(sender, message, payload, intact=True)


class Model:
    """A run: `step_times` gives each learner's mean seconds per step.

    `fragments` is P of the plan, if it makes fewer than the settings want; `noise` the standard
    deviation of a step's time, as a fraction of its mean. With `journal`, what is durable is kept,
    so that the syncer may be restarted (slower). With `rests`, every state is shown an event that
    says nothing after each one, to which it has nothing to say: its rules were at rest.
    """

    def __init__(
        self,
        settings: RunSettings,
        step_times: list[float],
        *,
        fragments: int | None = None,
        noise: float = 0.1,
        seed: int = 0,
        link: Link | None = None,
        journal: bool = False,
        tick_s: float = TICK_S,
        shard_records: int = SHARD_RECORDS,
    ) -> None:
        self.settings = settings
        self.fragments = fragments or settings.fragments
        self.link = link or Link()
        self.now_s = 0.0
        self._tick_s = tick_s
        self._shard_records = shard_records
        self.rests = False
        self.rng = random.Random(seed)
        self.tape: list[Line] = []
        self.finished: str | None = None
        self.learners: dict[LearnerName, LearnerState] = {}
        self.computes: dict[LearnerName, FakeCompute] = {}
        self.connected: dict[int, LearnerName] = {}
        self.processed = 0
        self.payloads: dict[Ticket, dict[int, Work]] = {}
        self.view: dict[LearnerName, Member] = {}
        self.cut: set[LearnerName] = set()
        self._applied: dict[tuple[int, int], int] = {}
        self._merging: dict[int, list[Work]] = {}
        self._values: dict[int, set[Version]] = defaultdict(set)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._counts = {"event": 0, "admission": 0, "connection": 0, "process": 0}
        self._noise = noise
        self._journal = journal
        self._journalled: Durable | None = None
        self._due_s = 0.0
        self.syncer_up = True
        self.recounts = False
        self.syncer = self._start_syncer(epoch=1)
        for index, step_s in enumerate(step_times):
            self.add_learner(f"learner-{index}", step_s)
        self._at(0.0, self._tick)

    # --- the world ----------------------------------------------------------------------------

    def _next(self, what: str) -> int:
        self._counts[what] += 1
        return self._counts[what]

    def _at(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now_s + delay_s, self._next("event"), call))

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._heap and self._heap[0][0] <= end_s and self.finished is None:
            self.now_s, _, call = heapq.heappop(self._heap)
            call()
        self.now_s = end_s if self.finished is None else self.now_s

    def _tick(self) -> None:
        for name in list(self.learners):
            self._learner(name, learner_events.Ticked())
        self._at(self._tick_s, self._tick)

    def add_learner(self, text: str, step_s: float) -> None:
        name = LearnerName(text)
        self.learners[name] = LearnerState(self.settings, name, FINGERPRINT, self.fragments)
        compute = FakeCompute(self._next("process"), step_s, self._noise, self._shard_records)
        self.computes[name] = compute
        self._learner(name, MOMENTS)
        self._learner(name, sessions.SupervisorLinkChanged(up=True))
        ready = learner_events.TrainerReady(BATCH_TOKENS)
        self._at(
            self.rng.uniform(0, step_s),
            lambda: self._learner(name, ready) if compute.alive else None,
        )

    def _admit(self, join: Join) -> None:
        name = LearnerName(join.name)
        incarnation = Incarnation(1, self._next("admission"))
        self.view[name] = Member(name, incarnation, Status.LIVE)
        self._publish()
        joined = Joined(self.settings.run, name, incarnation, "", 1, ("syncer",))
        self._learner(name, learner_events.FromSupervisor(joined))

    def _publish(self) -> None:
        if self.syncer_up:
            members = tuple(self.view[name] for name in sorted(self.view))
            self._syncer(MembershipChanged(1, members))

    def set_status(self, text: str, status: Status) -> None:
        name = LearnerName(text)
        self.view[name] = Member(name, self.view[name].incarnation, status)
        self._publish()

    def kill_learner(self, text: str) -> None:
        name = LearnerName(text)
        self.learners.pop(name)
        self.computes.pop(name).alive = False
        self._unlink(name)
        self.set_status(text, Status.EVICTED)

    def cut_link(self, text: str) -> None:
        name = LearnerName(text)
        self.cut.add(name)
        self._unlink(name)
        self._learner(name, sessions.SyncerLinkChanged(up=False))

    def heal_link(self, text: str) -> None:
        name = LearnerName(text)
        self.cut.discard(name)
        self._dial(name)

    def _unlink(self, name: LearnerName) -> None:
        for connection in [c for c, n in self.connected.items() if n == name]:
            del self.connected[connection]
            if self.syncer_up:
                self._syncer(syncer_events.LinkClosed(name, connection))

    # --- the syncer ---------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        self._syncer(syncer_events.StopRequested(reason))

    def restart_syncer(self, down_s: float = 0.0) -> None:
        assert self._journal, "this model keeps no journal"
        if not self.syncer_up:
            return
        self.syncer_up = False
        self.connected.clear()
        self.payloads.clear()
        self._merging.clear()
        self._values.clear()
        for name in list(self.learners):
            self._learner(name, sessions.SyncerLinkChanged(up=False))
        self._at(down_s, self._resume_syncer)

    def _resume_syncer(self) -> None:
        self.syncer = self._start_syncer(epoch=self.syncer.durable.epoch + 1)
        self.syncer_up = True
        self._publish()
        for name in list(self.learners):
            self._at(self.link.latency_s, lambda name=name: self._dial(name))  # type: ignore[misc]

    def _start_syncer(self, epoch: int) -> SyncerState:
        durable = deepcopy(self._journalled)
        if durable is None or None in durable.published:
            durable = fresh(self.settings, fragments=self.fragments, shards=SHARDS, epoch=epoch)
        durable.epoch = epoch
        self._due_s = self.now_s
        syncer = SyncerState(self.settings, FINGERPRINT, durable, now_s=self.now_s)
        self._later(0.0, syncer, syncer_events.Ticked())
        for fragment, held in enumerate(durable.published):
            self._values[fragment] = set() if held is None else {held.version}
        return syncer

    def _syncer(self, event: syncer_events.Event) -> None:
        actions = self.syncer.handle(event, now_s=self.now_s)
        if self.recounts:
            recount(self.syncer.core)
        if self.rests:
            more = self.syncer.handle(NOBODY_STEPPED, now_s=self.now_s)
            assert more == [], f"the syncer was not at rest after {event}"
        for action in actions:
            self._perform_for_syncer(action)
        deadline_s = self.syncer.deadline_s(self.now_s)
        if deadline_s < self._due_s or self._due_s <= self.now_s:
            self._due_s = deadline_s
            self._later(deadline_s - self.now_s, self.syncer, syncer_events.Ticked())

    def _perform_for_syncer(self, action: syncer_actions.Action) -> None:
        match action:
            case syncer_actions.Send(connection, message):
                self._deliver(connection, learner_events.FromSyncer(message))
            case syncer_actions.SendValue(connection, message):
                self._deliver(
                    connection, sessions.UpdateArrived(message, intact=True, payload=NO_BYTES)
                )
            case syncer_actions.Dismiss(connection, message):
                self._deliver(connection, learner_events.FromSyncer(message))
                name = self.connected.pop(connection, None)
                if name is not None:
                    self._at(self.link.latency_s, lambda: self._lost(name))
                    self._at(2 * self.link.latency_s, lambda: self._dial(name))
            case syncer_actions.BeginMerge():
                self._merge(action)
            case syncer_actions.WriteJournal(sequence, fragment):
                self._write(sequence, fragment)
            case Record(entry):
                self.tape.append(Line(self.now_s, "syncer", entry))
            case syncer_actions.FinishRun(reason):
                self.finished = reason
            case syncer_actions.DropContribution(ticket, connection):
                held = self.payloads.pop(ticket, {})
                left = {c: work for c, work in held.items() if connection not in (None, c)}
                if left:
                    self.payloads[ticket] = left
            case syncer_actions.InstallSeed(version):
                for fragment in range(self.fragments):
                    self._values[fragment] = {version}
            case syncer_actions.ReleaseValues(fragment, version):
                self._values[fragment] = {v for v in self._values[fragment] if v >= version}

    def _later(self, delay_s: float, syncer: SyncerState, event: syncer_events.Event) -> None:
        def arrive() -> None:
            if self.syncer is syncer and self.syncer_up:
                self._syncer(event)

        self._at(delay_s, arrive)

    def _merge(self, action: syncer_actions.BeginMerge) -> None:
        merging = [self.payloads[part.ticket][part.connection] for part in action.parts]
        for part, work in zip(action.parts, merging, strict=True):
            applied = self._applied.get((work.process, action.fragment), 0)
            steps, closing = work.stop - work.start, self.syncer.core.closing is not None
            assert part.scale == 1.0 or closing, "only the end's lone steps weigh less"
            assert part.steps == max(1, round(part.scale * steps)), "a contribution is what it says"
            tokens = part.scale * steps * BATCH_TOKENS
            assert part.tokens == max(1, round(tokens)), "tokens are those of its steps"
            assert work.start >= applied, "a step would be applied twice"
        self._merging[action.fragment] = merging
        self._measure(action)
        count, target = len(action.parts), action.target
        facts = syncer_events.MergeFacts(str(target), (1.0,) * count, (1.0,) * count, 1.0, 0.0)
        done = syncer_events.MergeFinished(action.fragment, action.round, facts)
        self._later(self.link.merge_s, self.syncer, done)

    def _measure(self, action: syncer_actions.BeginMerge) -> None:
        """Keep the new value as a store does; what contributions are measured against is held."""
        values = self._values[action.fragment]
        assert action.current in values, "the value to step from was freed"
        if self.settings.rebases:
            freed = [str(part.base) for part in action.parts if part.base not in values]
            assert not freed, f"bases {freed} of fragment {action.fragment} were freed"
        values.add(action.target)
        for old in sorted(values)[: -self.settings.values_kept]:
            values.discard(old)

    def _write(self, sequence: int, fragment: int | None) -> None:
        syncer = self.syncer
        copy = deepcopy(syncer.durable) if self._journal else None

        def durable() -> None:
            if self.syncer is syncer and self.syncer_up:
                self._journalled = copy
                for work in [] if fragment is None else self._merging.pop(fragment, []):
                    self._applied[work.process, fragment] = work.stop  # type: ignore[index]
                self._syncer(syncer_events.JournalFinished(sequence))

        self._at(self.link.journal_s, durable)

    def _deliver(self, connection: int, event: learner_events.Event) -> None:
        name = self.connected.get(connection)
        if name is None:
            return
        target = self.learners[name]

        def arrive() -> None:
            if self.learners.get(name) is target:
                self._learner(name, event)

        self._at(self.link.latency_s, arrive)

    # --- the learners -------------------------------------------------------------------------

    def _lost(self, name: LearnerName) -> None:
        if name not in self.connected.values():
            self._learner(name, sessions.SyncerLinkChanged(up=False))

    def _dial(self, name: LearnerName) -> None:
        linked = name in self.connected.values()
        if name in self.learners and name not in self.cut and self.syncer_up and not linked:
            self.connected[self._next("connection")] = name
            self._learner(name, sessions.SyncerLinkChanged(up=True))

    def _learner(self, name: LearnerName, event: learner_events.Event) -> None:
        learner = self.learners.get(name)
        if learner is not None:
            actions = learner.handle(event, now_s=self.now_s)
            if self.rests:
                more = learner.handle(GRANT_OF_NOBODY, now_s=self.now_s)
                assert more == [], f"{name} was not at rest after {event}"
            for action in actions:
                self._perform_for_learner(name, action)

    def _perform_for_learner(self, name: LearnerName, action: learner_actions.Action) -> None:
        compute = self.computes[name]
        match action:
            case sessions.ToSupervisor(Join() as join):
                target = self.learners[name]
                self._at(self.link.latency_s, lambda: self._join(target, join))
            case sessions.DialSyncer():
                self._dial(name)
            case sessions.ToSyncer(message):
                self._to_syncer(name, message)
            case learner_actions.Contribute(message, _):
                self._contribute(name, compute, message)
            case learner_actions.ReadValue(request, incarnation):
                self._learner(name, learner_events.ValueRead(request, incarnation, NO_BYTES))
            case learner_actions.OfferSeed(message):
                seed = replace(message, digest="seed")
                self._up(name, lambda _: syncer_events.SeedArrived(seed, intact=True))
            case learner_actions.PlanSnapshots(fragments):
                compute.plan = fragments
                self._idle_boundary(name)
            case (
                learner_actions.AdoptValue()
                | learner_actions.AllowSteps()
                | learner_actions.ReadMoments()
                | learner_actions.LoadMoments()
            ):
                compute.commands.append(action)
                self._idle_boundary(name)
            case learner_actions.ToPeer(peer, message):
                self._to_peer(name, LearnerName(peer), message)
            case learner_actions.SetTimer(after_s):
                target = self.learners[name]
                self._at(after_s, lambda: self._remind(target))
            case Record(entry):
                self.tape.append(Line(self.now_s, name, entry))
            case _:
                pass

    def _remind(self, learner: LearnerState) -> None:
        if self.learners.get(learner.membership.name) is learner:
            self._learner(learner.membership.name, learner_events.TimerDue())

    def _to_peer(
        self, name: LearnerName, peer: LearnerName, message: StateRequest | StateOffer
    ) -> None:
        event = for_peer(name, message, NO_BYTES)

        def arrive() -> None:
            if peer in self.connected.values():
                self._learner(peer, event)

        if self.syncer_up and name in self.connected.values():
            self._at(2 * self.link.latency_s, arrive)

    def _join(self, learner: LearnerState, join: Join) -> None:
        if self.learners.get(learner.membership.name) is learner and learner.incarnation is None:
            self._admit(join)

    def _contribute(
        self, name: LearnerName, compute: FakeCompute, message: training.Contribution
    ) -> None:
        work = compute.snapshots[message.fragment]
        norm = float(message.steps) ** 0.5
        check = Check(schema_ok=True, digest_ok=True, finite=True, norm=norm)

        def arrive(connection: int) -> syncer_events.Event:
            self.payloads.setdefault(message.ticket, {}).setdefault(connection, work)
            return syncer_events.ContributionArrived(message, check, connection)

        self._up(name, arrive)

    def _to_syncer(self, name: LearnerName, message: object) -> None:
        match message:
            case training.Hello():
                self._up(name, lambda c: syncer_events.LinkOpened(message, c, trusted=True))
            case training.Progress() | training.ContributionDeclined() | Leave():
                self._up(name, lambda c: Received(message, c))
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
        allowed = self._obey(name, compute)
        for index in compute.plan:
            if index in compute.bases and compute.copies.may_begin(index, compute.steps):
                self._snapshot(name, compute, index)
        was_running, compute.running = compute.running, False
        if compute.may_step():
            compute.running = True
            duration_s = max(0.1, self.rng.gauss(1.0, compute.noise)) * compute.step_s
            self._at(duration_s, lambda: self._stepped(name, compute, duration_s))
        elif was_running or allowed:
            idled = learner_events.Idled(
                *(compute.steps, compute.tokens, compute.leases), compute.order
            )
            self._learner(name, idled)

    def _obey(self, name: LearnerName, compute: FakeCompute) -> bool:
        allowed = False
        while compute.commands:
            command = compute.commands.pop(0)
            allowed |= isinstance(command, learner_actions.AllowSteps)
            done = compute.obey(command, NO_BYTES)
            if done is not None:
                self._learner(name, done)
        return allowed

    def _snapshot(self, name: LearnerName, compute: FakeCompute, index: FragmentIndex) -> None:
        base, steps = compute.bases[index], compute.steps
        work = Work(compute.process, compute.marks[index], steps)
        taken = learner_events.SnapshotTaken(index, base, steps, compute.tokens, NO_BYTES)

        if compute.taken.get(index) == (base, steps) or compute.marks[index] == steps:
            return
        compute.taken[index] = (base, steps)
        compute.copies.begin(index, steps)
        compute.copied_s = max(compute.copied_s, self.now_s) + self.link.copy_s

        def arrive() -> None:
            compute.copies.arrive(index)
            if compute.alive:
                compute.snapshots[index] = work
                self._learner(name, taken)
                self._idle_boundary(name)

        self._at(compute.copied_s - self.now_s, arrive)

    def _stepped(self, name: LearnerName, compute: FakeCompute, duration_s: float) -> None:
        if not compute.alive:
            return
        compute.steps += 1
        compute.tokens += BATCH_TOKENS
        self.processed += BATCH_TOKENS
        compute.read()
        step = learner_events.StepFinished(
            compute.steps, compute.tokens, duration_s, finite=True, leases=compute.leases
        )
        self._learner(name, step)
        self._boundary(name, compute)

    # --- what came of it ----------------------------------------------------------------------

    def steps(self) -> dict[LearnerName, int]:
        return {name: compute.steps for name, compute in self.computes.items()}

    def merges(self, since_s: float = 0.0) -> list[Merged]:
        return [e for at_s, _, e in self.tape if isinstance(e, Merged) and at_s >= since_s]

    def count(self, kind: str, since_s: float = 0.0) -> int:
        return sum(1 for at_s, _, entry in self.tape if entry.kind == kind and at_s >= since_s)

    def effective_interval(self, since_s: float, steps: float) -> float:
        """H as it came out: steps of a learner per merge of one fragment."""
        return steps * self.fragments / len(self.merges(since_s))

    def participation(self, since_s: float) -> float:
        merges = self.merges(since_s)
        names = [f"learner-{index}" for index in range(self._counts["process"])]
        arrived = sum(name in m.participants for m in merges for name in names)
        return arrived / sum(m.learners for m in merges)

    def share_of(self, text: str, since_s: float) -> float:
        """Share of merges in which one learner took part."""
        merges = self.merges(since_s)
        return sum(text in str(m.participants) for m in merges) / len(merges)
