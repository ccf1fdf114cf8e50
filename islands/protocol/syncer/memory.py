"""The syncer's memory in parts, and what several rules ask of more than one of them.

The fields of a part are written by its own methods alone; `Durable`, and the records inside parts,
by the rule that decides. All parts but `health` and `durable` count how often they have changed.
The rules are functions over `SyncerMemory`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from islands.protocol.identities import TRAINING, LearnerName, Phase, Version
from islands.protocol.messages.training import LeaseGranted
from islands.protocol.sessions import Handlers, Received
from islands.protocol.settings.choices import Automatic, LearnerWaits
from islands.protocol.settings.run import OVERLAP_LEAST, RunSettings
from islands.protocol.syncer.actions import Action, Send, WriteJournal
from islands.protocol.syncer.journalling import Durable, Journalling
from islands.protocol.syncer.members import (
    LearnerRecord,
    Members,
    ineligible_because,
    unready_because,
)
from islands.protocol.syncer.rounds import Rounds
from islands.protocol.syncer.timeouts import (
    Health,
    answer_timeout_s,
    final_patience_s,
    overlap_needed,
    resend_s,
)
from islands.protocol.syncer.versions import Versions
from islands.protocol.tape.entry import Entry, Record


class ClosingStage(StrEnum):
    """Stages of the end of the run, in order (`closing.py`)."""

    DRAINING = "draining"
    ROUNDS = "rounds"
    ADOPTING = "adopting"
    CUTTING = "cutting"
    FINISHED = "finished"
    ENDED = "ended"


@dataclass(slots=True)
class Closing:
    """The end of the run; `left` are the fragments whose closing round is still to come.

    `deadline_s` bounds the wait for learners and, once finished, the wait for the supervisor. When
    something went `forward`, the deadline moves to `patience_s` from then, up to the fixed limit
    `latest_s`. The present stage began at `began_s`. `stopped` holds the learners that reported so,
    and `silent` those that did not answer in time: they are neither asked any more nor waited for.
    """

    reason: str
    deadline_s: float
    latest_s: float
    left: list[int]
    stage: ClosingStage = ClosingStage.DRAINING
    patience_s: float = 0.0
    forward: bool = False
    began_s: float = inf
    stopped: set[LearnerName] = field(default_factory=set)
    silent: set[LearnerName] = field(default_factory=set)
    changes: int = 1

    def went_forward(self, patience_s: float = 0.0) -> None:
        """Move the deadline on when it is next looked at."""
        self.forward = True
        self.patience_s = max(self.patience_s, patience_s)
        self.changes += 1

    def count_stopped(self, name: LearnerName, patience_s: float) -> None:
        self.stopped.add(name)
        self.went_forward(patience_s)

    def give_up(self, name: LearnerName) -> None:
        self.silent.add(name)
        self.went_forward()

    def overdue(self, now_s: float) -> bool:
        """Return whether the deadline has passed, which progress since the last call moves on."""
        if self.forward:
            self.forward = False
            until_s = min(now_s + self.patience_s, self.latest_s)
            self.deadline_s = max(self.deadline_s, until_s)
            self.changes += 1
        return now_s >= self.deadline_s

    def go_on(self, stage: ClosingStage, now_s: float) -> None:
        self.enter(stage)
        self.began_s = now_s
        self.deadline_s = min(now_s + self.patience_s, self.latest_s)

    def enter(self, stage: ClosingStage) -> None:
        self.stage = stage
        self.changes += 1

    def wait_until(self, until_s: float) -> None:
        self.deadline_s = until_s
        self.changes += 1

    def close(self, fragment: int) -> None:
        self.left.remove(fragment)
        self.changes += 1


@dataclass(slots=True)
class SyncerMemory:
    """All that a syncer knows; `actions` are those of the event being handled."""

    settings: RunSettings
    fingerprint: str
    epoch_proof: str
    durable: Durable
    rounds: Rounds
    versions: Versions
    journal: Journalling
    health: Health
    members: Members
    closing: Closing | None = None
    supervised: bool = False
    actions: list[Action] = field(default_factory=list)

    @property
    def changes(self) -> int:
        """The changes of all parts that rules read, so far: at rest, the sum stays as it is."""
        parts = self.members.changes + self.rounds.changes + self.versions.changes
        closing = 0 if self.closing is None else self.closing.changes
        return parts + self.journal.changes + closing

    @property
    def fragments(self) -> int:
        return len(self.versions.published)

    @property
    def seeded(self) -> bool:
        """Whether every fragment has a committed version: they get version 0 together, in order."""
        return self.versions.published[-1] is not None

    def version(self, fragment: int) -> Version:
        """Return the committed version of a fragment of a seeded run."""
        published = self.versions.published[fragment]
        assert published is not None, "the run has no version 0 yet"
        return published.version

    @property
    def over(self) -> bool:
        """Whether the final cut is durable: the ledger is closed."""
        closing = self.closing
        return closing is not None and closing.stage in (ClosingStage.FINISHED, ClosingStage.ENDED)

    @property
    def overlap_steps(self) -> int:
        """τ, as it is set or, if it is `auto`, as it follows from measured times."""
        if self.settings.overlap_steps is not Automatic.AUTO:
            return self.settings.overlap_steps
        needed = overlap_needed(self.rounds.durations) or OVERLAP_LEAST
        return min(self.settings.overlap_steps_max, max(OVERLAP_LEAST, needed))

    @property
    def step_s(self) -> float:
        """ξ_step, 0 while it is unknown."""
        return self.rounds.durations.step_s.value or 0.0

    def answer_timeout_s(self, learner: LearnerRecord) -> float:
        step_s = max(self.step_s, learner.step_s)
        return answer_timeout_s(
            self.settings.timing,
            fragments=self.fragments,
            step_s=self.step_s,
            exchange_s=learner.exchange.measured_s(step_s),
        )

    def resend_s(self, exchange_s: float | None = None) -> float:
        return resend_s(
            self.settings.timing,
            overlap_steps=self.overlap_steps,
            step_s=self.step_s,
            exchange_s=exchange_s,
        )

    def went_forward(self, learner: LearnerRecord | None = None) -> None:
        if self.closing is not None:
            self.closing.went_forward(0.0 if learner is None else self.final_patience_s(learner))

    def on_adopted(self, learner: LearnerRecord) -> None:
        """Count an adopted version as progress once every learner has stopped."""
        if self.closing is not None and self.closing.stage is not ClosingStage.DRAINING:
            self.went_forward(learner)

    def on_stopped(self, learner: LearnerRecord) -> None:
        if self.closing is not None and learner.name not in self.closing.stopped:
            self.closing.count_stopped(learner.name, self.final_patience_s(learner))

    def final_patience_s(self, learner: LearnerRecord) -> float:
        timing, exchange = self.settings.timing, learner.exchange
        answer_s = exchange.measured_s(learner.step_s) or 0.0
        patience_s = final_patience_s(
            timing,
            step_s=learner.step_s,
            exchange_s=max(
                answer_s + (exchange.ages_s.value or 0.0), exchange.adoptions_s.value or 0.0
            ),
        )
        unknown = learner.phase is Phase.STEPPING and learner.step_s == 0
        return max(patience_s, timing.scaled(timing.compile_s)) if unknown else patience_s

    def touch(self, name: LearnerName) -> None:
        """Mark a learner that joined, left, reported or was judged, so that indexes are updated."""
        self.members.touch(name)
        self.journal.may_need(name)

    def advance_clock(self, steps: float) -> None:
        """Advance the learning-rate clock by so many steps of the fleet, or as tokens are spent."""
        durable, processed = self.durable, self.durable.ledger.processed
        durable.clock = self.settings.clock_after(
            durable.clock, steps=steps, processed_tokens=processed
        )

    def hear(self, learner: LearnerRecord, now_s: float) -> None:
        if learner.hears(now_s):
            self.touch(learner.name)

    def update_indexes(self) -> None:
        members, rounds = self.members, self.rounds
        while members.changed:
            name, learner = members.update_next()
            if learner is not None and unready_because(learner) is None:
                rounds.pace.enter(name, trains=learner.phase in TRAINING)
            else:
                rounds.pace.leave(name)
            barren = rounds.barren if learner is not None else None
            if barren is not None and self.ineligible(name, barren % self.fragments) is None:
                rounds.find_barren(None)

    def names(self) -> list[LearnerName]:
        """Return all known names, sorted: no decision depends on any other order."""
        self.update_indexes()
        return list(self.members.index.names)

    @property
    def learner_count(self) -> int:
        """The number of known learners, without observers."""
        self.update_indexes()
        return len(self.members.index.learners)

    def any_learner(self, what: str, true_of: Callable[[LearnerRecord], bool]) -> bool:
        """Return whether a condition, of which `what` is the unique name, is true of any peer."""
        self.update_indexes()
        return self.members.any(what, true_of)

    def pace_setter(self) -> LearnerName | None:
        self.update_indexes()
        return self.rounds.pace.setter()

    def pace_allows(self) -> bool:
        """Return whether enough steps were done for one more round (`rounds.py`).

        A learner that waits for a merge steps no further. So if no ready learner steps, no round is
        open, and one waits though it has adopted all values, a round is due, whatever was counted.
        """
        self.update_indexes()
        return self.rounds.pace.ready() or (not self.rounds.open and self._waits_in_vain())

    def _waits_in_vain(self) -> bool:
        if self.settings.learner_waits is LearnerWaits.NEVER:
            return False
        ready = self.rounds.pace.ranked

        def waits(learner: LearnerRecord) -> bool:
            mine = (learner.holds(index) for index in range(self.fragments))
            newest = (None if each is None else each.version for each in self.versions.published)
            waiting = learner.name in ready and learner.phase is Phase.WAITING
            return waiting and all(held == new for held, new in zip(mine, newest, strict=True))

        return self.nobody_steps() and self.any_learner("ready and waiting in vain", waits)

    def nobody_steps(self) -> bool:
        """Return whether no ready learner steps: nobody has more to contribute before a merge."""
        self.update_indexes()
        ready = self.rounds.pace.ranked

        def steps(learner: LearnerRecord) -> bool:
            return learner.name in ready and learner.phase is Phase.STEPPING

        return not self.any_learner("ready and stepping", steps)

    def ineligible(self, name: LearnerName, fragment: int) -> str | None:
        """Return why a learner may not be asked for a fragment, or None."""
        kept = self.versions.kept[fragment]
        merged = self.durable.ledger.merged_version(name, fragment)
        return ineligible_because(self.members.learners[name], fragment, kept=kept, merged=merged)

    def eligible(self, fragment: int) -> list[LearnerName]:
        return [name for name in self.names() if self.ineligible(name, fragment) is None]

    def record(self, entry: Entry) -> None:
        self.actions.append(Record(entry))

    def send(self, connection: int | None, message: object) -> None:
        """Send a control message to a peer that can be reached."""
        if connection is not None:
            self.actions.append(Send(connection, message))

    def grant_of(self, name: LearnerName) -> LeaseGranted:
        holder = self.durable.leases.holders[name]
        return LeaseGranted(
            epoch=self.durable.epoch,
            incarnation=holder.incarnation,
            quota_tokens=holder.quota_tokens,
            leases=tuple(holder.leases),
        )

    def next_record_s(self) -> float | None:
        """Return when the next record without a fragment may be written; None if none is known."""
        if any(fragment is None for _, fragment in self.journal.journalling):
            return None  # the time is known once the one under way is durable
        accounts = len(self.durable.ledger.books) * self.fragments
        return self.journal.records.at_s(accounts)

    def write_due(self, now_s: float) -> None:
        at_s = self.next_record_s()
        if at_s is not None and at_s <= now_s:
            self.journal.records.written(now_s)
            self._write(None, None)

    def write_fragment(self, fragment: int) -> None:
        newest = self.durable.published[fragment]
        assert newest is not None, "a fragment is journalled with its version"
        self._write(fragment, newest.version)

    def _write(self, fragment: int | None, version: Version | None) -> None:
        self.durable.sequence += 1
        self.journal.records.written()
        self.journal.write(self.durable.sequence, fragment, self.grant_of)
        self.actions.append(WriteJournal(self.durable.sequence, fragment, version))


HANDLERS = Handlers[SyncerMemory, [int, float]]()
"""The handlers of messages that are events as they come, with their connection and the time."""

EVENTS = Handlers[SyncerMemory, [float]]()
"""The handlers of events, with the time."""


@EVENTS.handles(Received)
def on_received(core: SyncerMemory, event: Received, now_s: float) -> None:
    HANDLERS.handle(core, event.message, event.connection, now_s)
