"""The syncer's memory, and the few operations on it that several rules share.

`Core` is plain data plus the list of actions being collected while one event is handled. The rules
are functions over it: `sessions.py` (membership), `scheduling.py` (rounds), `commits.py` (new
versions), `closing.py` (the end of the run).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from islands.protocol.errors import InvariantError
from islands.protocol.identities import (
    TRAINING,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Version,
)
from islands.protocol.messages.training import FragmentUpdate, LeaseGranted, Merged
from islands.protocol.settings.run import OVERLAP_LEAST, Automatic, LearnerWaits, RunSettings
from islands.protocol.supervisor_view import SupervisorView
from islands.protocol.syncer.actions import Action, Send, SendValue, WriteJournal
from islands.protocol.syncer.books import ACCOUNT_BYTES, Positions, RecordSchedule
from islands.protocol.syncer.durable import Durable
from islands.protocol.syncer.eligibility import ineligible_because, unready_because
from islands.protocol.syncer.members import LearnerIndex, LearnerRecord, Sent, Witness
from islands.protocol.syncer.plausibility import NormGauge
from islands.protocol.syncer.rounds import Round
from islands.protocol.syncer.timeouts import answer_timeout_s, final_patience_s
from islands.protocol.syncer.timing import Durations, FastestStep, Pace, overlap_needed, set_turn
from islands.protocol.syncer.versions import (
    Increments,
    KeptVersions,
    Published,
    Seeding,
    increments_since,
)
from islands.protocol.syncer.watches import (
    Divergences,
    GraceWatch,
    MergeWatch,
    Standing,
    SwingWatch,
    WaitWatch,
)
from islands.protocol.tape.entry import Entry, Record
from islands.protocol.tape.member_entries import TurnSet


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
    `latest_s`. `stopped` holds the learners that reported so, and `silent` those that did not
    answer in time: they are neither asked any more nor waited for.
    """

    reason: str
    deadline_s: float
    latest_s: float
    left: list[int]
    stage: ClosingStage = ClosingStage.DRAINING
    patience_s: float = 0.0
    forward: bool = False
    stopped: set[LearnerName] = field(default_factory=set)
    silent: set[LearnerName] = field(default_factory=set)


@dataclass(slots=True)
class Adoption:
    """A wait for the K-th report that a version was adopted, by which ξ_sync is measured."""

    version: Version
    closed_s: float
    quorum: int
    reports: int = 0


@dataclass(slots=True)
class Core:
    """All that a syncer knows.

    `counted_s` is the time up to which `Durable.elapsed_s` counts, `swept_s` that of the last sweep
    (`retries.py`). Every Welcome gives `epoch_proof` to a peer. `initial` tells whether version 0
    is to be that of a file, so that no learner is asked for its own, and `read` are the digests of
    it once it is read. Up to `returns_until_s` a run without a journal waits for members that have
    newer values; None: such values are not taken back (`versions.py`). `supervised` tells
    whether the link to the supervisor is up. `wrongs` holds, by name, the times of reports that
    cannot be true, and `donations` those at which it was told of a donor (`donors.py`);
    `standing` and `idle` tell who does no step (`standing.py`), `departed` who was sent what.

    `published` and `positions` are those of `Durable` that are durable, so that they may be told.
    `grants` holds the grants that are not durable yet, each with the sequence number of its record
    once that is written. `written_grants` holds the content of each such record, oldest first: a
    grant may be renewed repeatedly before it is durable, and only what is durable is sent.

    No rule may look at all learners after every event: a run has thousands of each. A rule that
    changes a learner calls `touch`. `changed` holds the learners that `learner_index` and the pace
    have yet to take in, `touched` those of the event being handled, `ungranted` those that may need
    tokens or data since the last grants, and `hungry` those that could not be given a whole batch.
    `barren` is the number of the next round if nobody was eligible for it, `unspent` shows that
    tokens are left (`closing.py`), `witnesses` are those of `any_learner`, and `fastest` is known
    for the event being handled. `cursors_full` is whether a cursor was not kept since this start.
    """

    settings: RunSettings
    fingerprint: str
    durable: Durable
    pace: Pace
    counted_s: float
    learners: dict[LearnerName, LearnerRecord] = field(default_factory=dict)
    published: list[Published | None] = field(default_factory=list)
    positions: Positions = field(default_factory=Positions)
    kept: list[KeptVersions] = field(default_factory=list)
    increments: list[Increments] = field(default_factory=list)
    rounds: dict[int, Round] = field(default_factory=dict)
    fastest: FastestStep = field(default_factory=FastestStep)
    durations: Durations = field(default_factory=Durations.unknown)
    gauges: list[NormGauge] = field(default_factory=list)
    adoptions: dict[int, Adoption] = field(default_factory=dict)
    journalling: deque[tuple[int, int | None]] = field(default_factory=deque)
    records: RecordSchedule = field(default_factory=RecordSchedule)
    grants: dict[LearnerName, int | None] = field(default_factory=dict)
    written_grants: deque[tuple[int, dict[LearnerName, LeaseGranted]]] = field(
        default_factory=deque
    )
    absent: dict[LearnerName, float] = field(default_factory=dict)
    view: SupervisorView = field(default_factory=SupervisorView)
    epoch_proof: str = ""
    wrongs: dict[LearnerName, list[float]] = field(default_factory=dict)
    donations: dict[LearnerName, list[float]] = field(default_factory=dict)
    departed: dict[LearnerName, tuple[Incarnation, dict[int, Sent]]] = field(default_factory=dict)
    supervised: bool = False
    initial: bool = False
    read: tuple[str, ...] | None = None
    returns_until_s: float | None = None
    seedings: int = 0
    seeding: Seeding | None = None
    closing: Closing | None = None
    swept_s: float = 0.0
    learner_index: LearnerIndex = field(default_factory=LearnerIndex)
    witnesses: dict[str, Witness] = field(default_factory=dict)
    changed: dict[LearnerName, None] = field(default_factory=dict)
    touched: dict[LearnerName, None] = field(default_factory=dict)
    ungranted: dict[LearnerName, None] = field(default_factory=dict)
    hungry: dict[LearnerName, None] = field(default_factory=dict)
    barren: int | None = None
    cursors_full: bool = False
    unspent: tuple[LearnerName, LearnerName | None] | None = None
    grace_watch: GraceWatch = field(default_factory=GraceWatch)
    swings: SwingWatch = field(default_factory=SwingWatch)
    merge_watch: MergeWatch = field(default_factory=MergeWatch)
    wait_watch: WaitWatch = field(default_factory=WaitWatch)
    standing: dict[LearnerName, Standing] = field(default_factory=dict)
    idle: dict[LearnerName, None] = field(default_factory=dict)
    divergences: Divergences = field(default_factory=Divergences)
    abandoned_s: dict[int, float] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)

    @property
    def fragments(self) -> int:
        """P, the number of fragments."""
        return len(self.published)

    @property
    def clock(self) -> float:
        """The learning-rate clock: H/P steps per opened round, or for M rounds of learners' own."""
        return self.durable.clock

    @property
    def seeded(self) -> bool:
        """Whether every fragment has a committed version: they get version 0 together, in order."""
        return self.published[-1] is not None

    def version(self, fragment: int) -> Version:
        """Return the committed version of a fragment of a seeded run."""
        published = self.published[fragment]
        assert published is not None, "the run has no version 0 yet"
        return published.version

    @property
    def interval_steps(self) -> int:
        """H of the run."""
        return self.settings.interval_steps

    @property
    def overlap_steps(self) -> int:
        """τ, as it is set or, if it is `auto`, as it follows from measured times."""
        told = self.settings.overlap_steps
        if told is not Automatic.AUTO:
            return told
        needed = overlap_needed(self.durations) or OVERLAP_LEAST
        return min(self.settings.overlap_steps_max, max(OVERLAP_LEAST, needed))

    @property
    def step_s(self) -> float:
        """ξ_step, 0 while it is unknown."""
        return self.durations.step_s.value or 0.0

    def answer_timeout_s(self, learner: LearnerRecord) -> float:
        """Return how long a round waits for this learner's answer (`timeouts.py`)."""
        step_s = max(self.step_s, learner.step_s)
        return answer_timeout_s(
            self.settings.timing,
            fragments=self.fragments,
            step_s=self.step_s,
            exchange_s=learner.exchange.measured_s(step_s),
        )

    def went_forward(self, learner: LearnerRecord | None = None) -> None:
        """Note progress of the closing, which moves its deadline on."""
        if self.closing is not None:
            self.closing.forward = True
            if learner is not None:
                patience_s = self.final_patience_s(learner)
                self.closing.patience_s = max(self.closing.patience_s, patience_s)

    def has_adopted(self, learner: LearnerRecord) -> None:
        """Note that a learner adopted a version: progress once every learner has stopped."""
        if self.closing is not None and self.closing.stage is not ClosingStage.DRAINING:
            self.went_forward(learner)

    def has_stopped(self, learner: LearnerRecord) -> None:
        """Note that a learner stopped stepping: progress of the closing, once per learner."""
        if self.closing is not None and learner.name not in self.closing.stopped:
            self.closing.stopped.add(learner.name)
            self.went_forward(learner)

    def final_patience_s(self, learner: LearnerRecord) -> float:
        """Return how long the end of the run waits for this learner (`timeouts.py`)."""
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
        self.touch_answers(name)
        self.ungranted[name] = None

    def touch_answers(self, name: LearnerName) -> None:
        """Mark a learner that answered a pull; that does not change which grant it needs."""
        self.changed[name] = None
        self.touched[name] = None

    def take_in(self) -> None:
        """Update the learner index and the pace ranking with the learners that changed."""
        while self.changed:
            name, _ = self.changed.popitem()
            learner = self.learners.get(name)
            self.learner_index.take_in(name, learner)
            if learner is not None and unready_because(learner) is None:
                self.pace.enter(name, trains=learner.phase in TRAINING)
            else:
                self.pace.leave(name)
            if learner is not None and self._ends_barren(name):
                self.barren = None

    def _ends_barren(self, name: LearnerName) -> bool:
        barren = self.barren
        return barren is not None and self.ineligible(name, barren % self.fragments) is None

    def names(self) -> list[LearnerName]:
        """Return all known names, sorted: no decision depends on any other order."""
        self.take_in()
        return list(self.learner_index.names)

    @property
    def learner_count(self) -> int:
        """The number of known learners; observers only read, so they are not counted."""
        self.take_in()
        return len(self.learner_index.learners)

    def any_learner(self, what: str, true_of: Callable[[LearnerRecord], bool]) -> bool:
        """Return whether a condition is true of any known peer (`members.py`).

        Args:
            what: unique name of the condition; one with a parameter has a name for each value.
            true_of: the condition.
        """
        self.take_in()

        def known(name: LearnerName) -> bool:
            learner = self.learners.get(name)
            return learner is not None and true_of(learner)

        return self.witnesses.setdefault(what, Witness()).found(self.learner_index.names, known)

    def pace_setter(self) -> LearnerName | None:
        """Return the learner that sets the pace now."""
        self.take_in()
        return self.pace.setter()

    def pace_allows(self) -> bool:
        """Return whether enough steps were done for one more round (`timing.py`).

        A learner that waits for a merge steps no further. So if no ready learner steps, no round is
        open, and one waits though it has adopted all values, a round is due, whatever was counted.
        """
        self.take_in()
        return self.pace.ready() or (not self.rounds and self._waits_in_vain())

    def _waits_in_vain(self) -> bool:
        if self.settings.learner_waits is LearnerWaits.NEVER:
            return False
        ready = self.pace.ranked

        def waits(learner: LearnerRecord) -> bool:
            mine = (learner.holds(index) for index in range(self.fragments))
            newest = (None if each is None else each.version for each in self.published)
            waiting = learner.name in ready and learner.phase is Phase.WAITING
            return waiting and all(held == new for held, new in zip(mine, newest, strict=True))

        return self.nobody_steps() and self.any_learner("ready and waiting in vain", waits)

    def nobody_steps(self) -> bool:
        """Return whether no ready learner steps: nobody has more to contribute before a merge."""
        self.take_in()
        ready = self.pace.ranked

        def steps(learner: LearnerRecord) -> bool:
            return learner.name in ready and learner.phase is Phase.STEPPING

        return not self.any_learner("ready and stepping", steps)

    def merged_version(self, name: LearnerName, fragment: int) -> Version | None:
        """Return the version that contains the learner's last merged contribution."""
        book = self.durable.ledger.books.get(name)
        return None if book is None else book.accounts[fragment].merged_version

    def ineligible(self, name: LearnerName, fragment: int) -> str | None:
        """Return why a learner may not be asked for a fragment (`eligibility.py`), or None."""
        kept, merged = self.kept[fragment], self.merged_version(name, fragment)
        return ineligible_because(self.learners[name], fragment, kept=kept, merged=merged)

    def eligible(self, fragment: int) -> list[LearnerName]:
        """Return the learners that may be asked for a fragment, by name."""
        return [name for name in self.names() if self.ineligible(name, fragment) is None]

    def publish(self, fragment: int, published: Published) -> None:
        """Commit a version, which must be durable, as the newest of those kept.

        Raises:
            InvariantError: the version is not durable, which is a bug.
        """
        durable = self.durable.published[fragment]
        if durable is None or published.version > durable.version:
            message = f"version {published} is published and not durable ({durable})"
            raise InvariantError(message)
        self.published[fragment] = published
        self.kept[fragment].append(published.version)

    def record(self, entry: Entry) -> None:
        """Put an entry on the event tape."""
        self.actions.append(Record(entry))

    def send_update(self, learner: LearnerRecord, fragment: int, now_s: float) -> None:
        """Send a fragment's committed version, and which of the receiver's work it contains."""
        published = self.published[fragment]
        if published is None or learner.connection is None:
            return
        again = learner.sending(fragment, published.version, now_s)
        held, newest = None if again else learner.holds(fragment), published.version
        trained = (self.learners[name] for name in self.pace.ranked)
        if set_turn(self.settings, self.interval_steps, learner, self.fastest, trained):
            self.record(TurnSet(learner.name, learner.turn_steps, learner.step_s))
        message = FragmentUpdate(
            epoch=self.durable.epoch,
            fragment=FragmentIndex(fragment),
            version=newest,
            round=published.round,
            digest=published.digest,
            clock=self.clock,
            merged=self.merged_into(learner.name, fragment, published.version),
            interval_steps=learner.turn_steps,
            since=increments_since(self.increments, fragment, held, newest, self.settings),
            tokens=published.tokens,
        )
        self.actions.append(SendValue(learner.connection, message))

    def merged_into(self, name: LearnerName, fragment: int, version: Version) -> Merged | None:
        """Return a learner's last merged contribution if a version contains it, else None."""
        book = self.durable.ledger.books.get(name)
        if book is None:
            return None
        account = book.accounts[fragment]
        contained = account.merged_version is not None and account.merged_version <= version
        return account.merged if contained else None

    def send_grant(self, learner: LearnerRecord) -> None:
        """Send all leases and the whole quota of a learner; they are durable already."""
        if learner.connection is not None:
            self.actions.append(Send(learner.connection, self._grant_of(learner.name)))

    def _grant_of(self, name: LearnerName) -> LeaseGranted:
        holder = self.durable.leases.holders[name]
        return LeaseGranted(
            epoch=self.durable.epoch,
            incarnation=holder.incarnation,
            quota_tokens=holder.quota_tokens,
            leases=tuple(holder.leases),
        )

    @property
    def all_durable(self) -> bool:
        """Whether no record is being written or waits to be written (`books.py`)."""
        return not self.journalling and self.records.due_s is None

    def next_record_s(self) -> float | None:
        """Return when the next record without a fragment may be written; None if none is known."""
        if any(fragment is None for _, fragment in self.journalling):
            return None  # the time is known once the one under way is durable
        accounts = len(self.durable.ledger.books) * self.fragments
        return self.records.at_s(accounts + self.durable.positions.size_bytes // ACCOUNT_BYTES)

    def write_due(self, now_s: float) -> None:
        """Write a record without a fragment if one is due."""
        at_s = self.next_record_s()
        if at_s is not None and at_s <= now_s:
            self.records.written_s = now_s
            self._write(None, None)

    def write_fragment(self, fragment: int) -> None:
        """Write a fragment's newest value and all metadata to the journal."""
        newest = self.durable.published[fragment]
        assert newest is not None, "a fragment is journalled with its version"
        self._write(fragment, newest.version)

    def _write(self, fragment: int | None, version: Version | None) -> None:
        self.durable.sequence += 1
        sequence = self.durable.sequence
        self.records.due_s = None
        held = [name for name, covered in self.grants.items() if covered is None]
        self.grants.update(dict.fromkeys(held, sequence))
        if held:
            self.written_grants.append((sequence, {name: self._grant_of(name) for name in held}))
        self.journalling.append((sequence, fragment))
        self.actions.append(WriteJournal(sequence, fragment, version))
