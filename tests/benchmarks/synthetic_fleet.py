"""Synthetic honest learners around the pure states of a syncer and a supervisor.

A learner steps, adopts what has arrived at its next boundary, reports after every step, answers
each pull with what it did since it adopted its base, and sends a heartbeat every second. It keeps
its books as a real one does, so the syncer's ledger balances. Nothing here trains.
"""

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import Any

from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    Lease,
    Phase,
    Role,
)
from islands.protocol.messages import training
from islands.protocol.messages.membership import (
    Heartbeat,
    Join,
    Joined,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor import actions as supervisor_actions
from islands.protocol.supervisor import events as supervisor_events
from islands.protocol.supervisor.memory import SupervisorMemory
from islands.protocol.supervisor.state import SupervisorState
from islands.protocol.syncer import actions as syncer_actions
from islands.protocol.syncer import events as syncer_events
from islands.protocol.syncer.journalling import fresh
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Entry, Record, encode_entry
from islands.syncer.journal import encode
from tests.syncer.bench import GOOD, Learner

FINGERPRINT = "synthetic"
BATCH_TOKENS = 100
SHARD_RECORDS = 1000
JOIN_S = 5.0
STEP_S = 1.0
NOISE = 0.05
LATENCY_S = 0.02
MERGE_S = 0.02
WRITE_S = 0.01
BEAT_S = 1.0
SUPERVISOR_TICK_S = 0.25
SYNCER_LINK = 0

Meter = Callable[[str, Callable[[], Any]], Any]


class SyntheticLearner(Learner):
    """One learner's books, and the messages that it sends."""

    step_tokens = BATCH_TOKENS

    def __init__(self, name: str, connection: int, fragments: int) -> None:
        super().__init__(name, fragments, counter=0)
        self.step_time_s = STEP_S
        self.connection = connection
        self.settled: list[tuple[int, int] | None] = [None] * fragments
        self.arrived: dict[int, training.FragmentUpdate] = {}
        self.stopping = False

    def step(self) -> None:
        tokens = (self.steps + 1) * BATCH_TOKENS
        index = next((i for i, lease in enumerate(self.leases) if not lease.done), None)
        if tokens > self.quota or index is None:
            return
        self.steps += 1
        lease = self.leases[index]
        position = lease.position + 1
        done = position == SHARD_RECORDS
        moved = Lease(lease.pass_index, lease.shard, position, done)
        self.leases = (*self.leases[:index], moved, *self.leases[index + 1 :])

    def grant(self, granted: training.LeaseGranted) -> None:
        """Take a quota and leases; positions reached here are newer than those that come back."""
        reached = {(lease.pass_index, lease.shard): lease for lease in self.leases}
        self.quota = granted.quota_tokens
        self.leases = tuple(
            max(lease, reached.get((lease.pass_index, lease.shard), lease))
            for lease in granted.leases
        )

    def adopt_arrived(self) -> None:
        for fragment, update in self.arrived.items():
            held = self.versions[fragment]
            if held is not None and update.version <= held:
                continue
            merged, settled = update.merged, 0
            if merged is not None and self.settled[fragment] != (merged.epoch, merged.round):
                self.settled[fragment] = (merged.epoch, merged.round)
                settled = merged.tokens
            self.adopt(fragment, update.version, settled)
        self.arrived.clear()

    @property
    def whole(self) -> bool:
        return None not in self.versions

    def answer(
        self, pull: training.PullFragment
    ) -> training.Contribution | training.ContributionDeclined:
        fragment = pull.fragment
        base, steps = self.versions[fragment], self.steps - self.marks[fragment]
        if base is None or steps < 1:
            return training.ContributionDeclined(pull.ticket, fragment, "no step since its base")
        return self.contribution(pull)


class Fleet:
    """A run of pure states on a heap of future events; `meter` does and counts what is handled."""

    def __init__(self, settings: RunSettings, learners: int, meter: Meter) -> None:
        """The syncer is a member of the run; learners are about to join."""
        self.settings = settings
        self.now_s = 0.0
        self.refused = 0
        self.records = 0
        self.metadata_bytes = 0
        self.finished = False
        self._meter = meter
        self._rng = random.Random(1)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers, self._admissions = count(), count(10**6)
        self._due_s = 0.0
        shards = max(64, 8 * learners)
        durable = fresh(settings, fragments=settings.fragments, shards=shards, epoch=1)
        self.syncer = SyncerState(settings, FINGERPRINT, durable, now_s=0.0)
        memory = SupervisorMemory(settings, FINGERPRINT, 1, "supervisor", (), {}, (), 0.0)
        self.supervisor = SupervisorState(memory)
        self._supervise(
            supervisor_events.JoinArrived(
                Join(PROTOCOL, settings.run, Role.SYNCER, "syncer", FINGERPRINT, address="syncer"),
                SYNCER_LINK,
                proven=True,
            )
        )
        self.learners = {
            index: SyntheticLearner(f"learner-{index:05d}", index, settings.fragments)
            for index in range(1, learners + 1)
        }
        for learner in self.learners.values():
            self._at(self._rng.uniform(0, JOIN_S), lambda learner=learner: self._join(learner))  # type: ignore[misc]  # mypy knows no such default
        self._at(0.0, self._beat_syncer)
        self._at(0.0, self._tick_supervisor)

    def _at(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now_s + delay_s, next(self._numbers), call))

    def run_until(self, done: Callable[[], bool], limit_s: float) -> None:
        """Let events happen until something is so, or a time is reached."""
        while self._heap and not done():
            if self._heap[0][0] > limit_s:
                self.now_s = limit_s
                return
            self.now_s, _, call = heapq.heappop(self._heap)
            call()

    @property
    def all_step(self) -> bool:
        return all(
            learner.phase is Phase.STEPPING and learner.quota > 0
            for learner in self.learners.values()
        )

    def stop(self) -> None:
        self._sync(syncer_events.StopRequested("measured"))

    # --- the supervisor -----------------------------------------------------------------------

    def _supervise(self, event: supervisor_events.Event) -> None:
        if self.supervisor.finished is not None:
            return
        what = f"supervisor {type(event).__name__}"
        actions = self._meter(what, lambda: self.supervisor.handle(event, now_s=self.now_s))
        for action in actions:
            match action:
                case supervisor_actions.Send(connection, message):
                    self._from_supervisor(connection, message)
                case Record(entry):
                    self._record("supervisor", entry)
                case _:
                    pass

    def _from_supervisor(self, connection: int, message: object) -> None:
        learner = self.learners.get(connection) if connection != SYNCER_LINK else None
        match message:
            case MembershipChanged():
                self._at(LATENCY_S, lambda: self._sync(message))
            case Joined() if learner is not None:
                self._admit(learner, message.incarnation)
            case Refused() if learner is not None:  # the run may have too many members already
                self.refused += 1
                self._admit(learner, Incarnation(1, next(self._admissions)))
            case Joined():
                self._syncer_incarnation = message.incarnation
            case _:
                pass

    def _tick_supervisor(self) -> None:
        self._supervise(supervisor_events.Ticked())
        self._at(SUPERVISOR_TICK_S, self._tick_supervisor)

    def _beat_syncer(self) -> None:
        beat = Heartbeat(
            Role.SYNCER,
            "syncer",
            self._syncer_incarnation,
            Phase.STEPPING,
            self.syncer.durable.merges,
            epoch=1,
            address="syncer",
        )
        self._supervise(supervisor_events.HeartbeatArrived(beat, SYNCER_LINK))
        self._at(BEAT_S, self._beat_syncer)

    # --- learners -----------------------------------------------------------------------------

    def _join(self, learner: SyntheticLearner) -> None:
        join = Join(PROTOCOL, self.settings.run, Role.LEARNER, str(learner.name), FINGERPRINT)
        self._supervise(supervisor_events.JoinArrived(join, learner.connection, proven=False))

    def _admit(self, learner: SyntheticLearner, incarnation: Incarnation) -> None:
        learner.incarnation = incarnation
        if incarnation.counter < 10**6:
            self._at(self._rng.uniform(0, BEAT_S), lambda: self._beat(learner))
        hello = learner.hello(self.settings.run, FINGERPRINT)
        self._at(
            2 * LATENCY_S,
            lambda: self._sync(syncer_events.LinkOpened(hello, learner.connection, trusted=True)),
        )

    def _beat(self, learner: SyntheticLearner) -> None:
        beat = Heartbeat(
            Role.LEARNER, str(learner.name), learner.incarnation, learner.phase, learner.steps
        )
        self._supervise(supervisor_events.HeartbeatArrived(beat, learner.connection))
        self._at(BEAT_S, lambda: self._beat(learner))

    def _boundary(self, learner: SyntheticLearner) -> None:
        learner.step()
        learner.adopt_arrived()
        if learner.stopping:
            learner.phase = Phase.FINISHED
        self._report(learner)
        if not learner.stopping:
            self._at(self._step_s(), lambda: self._boundary(learner))

    def _step_s(self) -> float:
        return STEP_S * max(0.1, self._rng.gauss(1.0, NOISE))

    def _report(self, learner: SyntheticLearner) -> None:
        progress = learner.progress()
        self._at(
            LATENCY_S,
            lambda: self._sync(Received(progress, learner.connection)),
        )

    def _update(self, learner: SyntheticLearner, update: training.FragmentUpdate) -> None:
        learner.arrived[update.fragment] = update
        if learner.phase is Phase.STEPPING:
            return  # at its next boundary
        learner.adopt_arrived()
        if learner.phase is Phase.HEALING and learner.whole:
            learner.phase = Phase.STEPPING
            self._report(learner)
            self._at(self._rng.uniform(0, STEP_S), lambda: self._boundary(learner))
        elif learner.phase is Phase.FINISHED:
            self._report(learner)

    def _receive(self, learner: SyntheticLearner, message: object) -> None:
        match message:
            case training.PullFragment():
                answer = learner.answer(message)
                event: syncer_events.Event
                if isinstance(answer, training.Contribution):
                    link = learner.connection
                    event = syncer_events.ContributionArrived(answer, GOOD, link)
                else:
                    event = Received(answer, learner.connection)
                self._at(LATENCY_S * self._rng.uniform(1, 2), lambda: self._sync(event))
            case training.LeaseGranted():
                learner.grant(message)
            case training.FragmentRequest(epoch, fragment):
                seed = training.FragmentSeed(
                    epoch, FragmentIndex(fragment), learner.name, learner.incarnation, ""
                )
                self._at(
                    LATENCY_S, lambda: self._sync(syncer_events.SeedArrived(seed, intact=True))
                )
            case training.FinalRound():
                learner.stopping = True
            case training.FragmentUpdate():
                self._update(learner, message)
            case Stop() | _:
                pass

    # --- the syncer ---------------------------------------------------------------------------

    def _sync(self, event: syncer_events.Event) -> None:
        what, at_s = f"syncer {type(event).__name__}", self.now_s

        def handle() -> tuple[list[syncer_actions.Action], float]:
            actions = self.syncer.handle(event, now_s=at_s)
            return actions, self.syncer.deadline_s(at_s)

        actions, deadline_s = self._meter(what, handle)
        for action in actions:
            self._perform(action)
        if deadline_s < self._due_s or self._due_s <= at_s:
            self._due_s = deadline_s
            self._at(max(0.0, deadline_s - at_s), lambda: self._sync(syncer_events.Ticked()))

    def _perform(self, action: syncer_actions.Action) -> None:
        match action:
            case syncer_actions.Send(connection, message) | syncer_actions.SendValue(
                connection, message
            ):
                learner = self.learners[connection]
                self._at(LATENCY_S, lambda: self._receive(learner, message))
            case syncer_actions.BeginMerge():
                self._at(MERGE_S, lambda: self._merged(action))
            case syncer_actions.WriteJournal(sequence):
                metadata = self._meter("syncer encode", lambda: encode(self.syncer.durable))
                self.records += 1
                self.metadata_bytes += len(metadata)
                self._at(WRITE_S, lambda: self._sync(syncer_events.JournalFinished(sequence)))
            case Record(entry):
                self._record("syncer", entry)
            case syncer_actions.FinishRun():
                self.finished = True
            case _:
                pass

    def _merged(self, action: syncer_actions.BeginMerge) -> None:
        parts = len(action.parts)
        facts = syncer_events.MergeFacts(
            str(action.target), (1.0,) * parts, (1.0,) * parts, 1.0, 0.0
        )
        self._sync(syncer_events.MergeFinished(action.fragment, action.round, facts))

    def _record(self, actor: str, entry: Entry) -> None:
        self._meter(f"{actor} tape", lambda: encode_entry(self.now_s, actor, entry))
