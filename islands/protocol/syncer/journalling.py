"""The journal: when it is written, what it holds (who has ended, too), and who may resume from it.

A record holds all metadata: one account per learner and fragment. So a fragment's record, which is
written at once with its new version, makes all other changes durable too. All other changes
(grants, ends of incarnations, an operator's command) wait for the next record. A change that nobody
waits for yet, such as a grant to a learner that has tokens left, gets a deadline for its record.
Records of many accounts are spaced by ten times what writing one of them costs.

A restarted syncer reads the newest record:

======================================  =======================================================
the journal is of another run           refused
the token budget is smaller             refused
it is larger, or there is none now      resumed; an end that had begun, or was reached, is undone;
                                        refused if the run's time is used up
time ended it, and there is more now    resumed, and that end is undone
it is the same, the run goes on         resumed, also in the middle of its end
it is the same, the run is over
  and the supervisor has heard so       refused, unless time ended it and there is more time now
  and the supervisor has not            resumed: only its end has yet to be reported
======================================  =======================================================

The error of a refusal says in a sentence how to go on.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from islands.protocol.errors import JournalError
from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.training import LeaseGranted
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.leases import LeaseBook, ordinary_grant_steps
from islands.protocol.syncer.ledger import Ledger
from islands.protocol.syncer.versions import Published
from islands.protocol.tape.round_entries import Extended

APART = 1000
"""Epochs from those of a journal's records to those of a start over a copy of them, and from those
of such a start to the next one over the journal itself, if that hears of it: neither knows of all
starts over the other, and the epochs of both must differ."""


def goes_on_from_a_copy(seen: int, own: int) -> bool:
    """Return whether an epoch that members have seen is that of a copy of this epoch's journal.

    What was merged there is in no record here, so no later start here may go on above it.
    """
    return seen - own >= APART // 2


SECONDS_PER_ACCOUNT = 5e-7
"""Cost of a record [M: 0.1 µs to encode an account on the loop's thread, 0.4 µs at most on the
worker's]."""

DISTANCE = 10
"""Spacing of records without a fragment, in costs: they take at most a tenth of the time."""

BLOCKED_S = 10.0
"""A record that waits for longer is reported: nothing is merged meanwhile."""

CHEAP_S = 1e-3
"""Records that cost less than this need no spacing."""


@dataclass(slots=True)
class RecordSchedule:
    """The next record without a fragment; `due_s` is its deadline, None if none is needed."""

    due_s: float | None = None
    written_s: float = -inf

    def want(self, by_s: float = -inf) -> None:
        """Ask for a record by a time, or at once if no time is given."""
        self.due_s = by_s if self.due_s is None else min(self.due_s, by_s)

    def written(self, now_s: float | None = None) -> None:
        """Note that a record is written, which holds all changes; at a time if it is by itself."""
        self.due_s = None
        if now_s is not None:
            self.written_s = now_s

    def at_s(self, accounts: int) -> float | None:
        """Return when to write, provided that no other record without a fragment is under way."""
        if self.due_s is None:
            return None
        cost_s = accounts * SECONDS_PER_ACCOUNT
        distance_s = DISTANCE * cost_s if cost_s >= CHEAP_S else 0.0
        return max(self.due_s, self.written_s + distance_s)


@dataclass(slots=True)
class Journalling:
    """Records and grants under way from the books to the journal, and from there to learners.

    `journalling` holds the number and the fragment of each record being written. `grants` holds the
    grants that are not durable yet, each with the number of its record once that is written, and
    `written_grants` the content of each such record, oldest first: a grant may be renewed
    repeatedly before it is durable, and only what is durable is sent. `ungranted` are the learners
    that may need tokens or data since the last grants, `hungry` those that could not be given a
    whole batch, and `unspent` shows that tokens are left (`closing.py`). Up to `counted_s` time
    counts against the budget. At `waiting_s` the disk last took a record, or was given the
    oldest of those that wait.
    """

    counted_s: float
    records: RecordSchedule = field(default_factory=RecordSchedule)
    journalling: deque[tuple[int, int | None]] = field(default_factory=deque)
    grants: dict[LearnerName, int | None] = field(default_factory=dict)
    written_grants: deque[tuple[int, dict[LearnerName, LeaseGranted]]] = field(
        default_factory=deque
    )
    ungranted: dict[LearnerName, None] = field(default_factory=dict)
    hungry: dict[LearnerName, None] = field(default_factory=dict)
    unspent: tuple[LearnerName, LearnerName | None] | None = None
    waiting_s: float = 0.0
    changes: int = 0

    @property
    def lag_s(self) -> float:
        """For how long the oldest record has waited to become durable, at the last event."""
        return self.counted_s - self.waiting_s if self.journalling else 0.0

    @property
    def blocked(self) -> bool:
        """Whether the disk has taken nothing for so long that a person should look at it."""
        return self.lag_s >= BLOCKED_S

    @property
    def all_durable(self) -> bool:
        return not self.journalling and self.records.due_s is None

    def write(
        self, sequence: int, fragment: int | None, grant_of: Callable[[LearnerName], LeaseGranted]
    ) -> None:
        """Note that a record is being written: it holds all grants that no record has yet."""
        held = [name for name, covered in self.grants.items() if covered is None]
        self.grants.update(dict.fromkeys(held, sequence))
        if held:
            self.written_grants.append((sequence, {name: grant_of(name) for name in held}))
        if not self.journalling:
            self.waiting_s = self.counted_s
        self.journalling.append((sequence, fragment))
        self.changes += 1

    def take_durable(self, sequence: int) -> list[int]:
        """Take out the records up to a number, which are durable; return their fragments."""
        fragments, self.waiting_s = [], self.counted_s
        while self.journalling and self.journalling[0][0] <= sequence:
            _, fragment = self.journalling.popleft()
            if fragment is not None:
                fragments.append(fragment)
        self.changes += 1
        return fragments

    def take_grants(self, sequence: int) -> dict[LearnerName, LeaseGranted]:
        """Take out the newest grants that records up to a number hold, by name."""
        durable: dict[LearnerName, LeaseGranted] = {}
        while self.written_grants and self.written_grants[0][0] <= sequence:
            durable.update(self.written_grants.popleft()[1])
        for name in durable:
            covered = self.grants.get(name)
            if covered is not None and covered <= sequence:
                del self.grants[name]
        return dict(sorted(durable.items()))

    def take_ungranted(self) -> list[LearnerName]:
        names = sorted(self.ungranted)
        self.ungranted.clear()
        return names

    def may_need(self, name: LearnerName) -> None:
        self.ungranted[name] = None

    def granted(self, name: LearnerName) -> None:
        self.grants[name] = None
        self.changes += 1

    def set_hungry(self, name: LearnerName, *, hungry: bool) -> None:
        if hungry:
            self.hungry[name] = None
        else:
            self.hungry.pop(name, None)

    def gave_back(self, name: LearnerName) -> None:
        self.grants.pop(name, None)
        self.hungry.pop(name, None)
        self.ungranted.update(self.hungry)
        self.changes += 1

    def show_unspent(self, reader: LearnerName, holder: LearnerName | None) -> None:
        self.unspent = reader, holder

    def forget_unspent(self) -> None:
        self.unspent = None

    def count_until(self, now_s: float) -> float:
        """Return the time that has passed since the last call."""
        passed_s, self.counted_s = now_s - self.counted_s, now_s
        return passed_s


NAMES_KEPT = 4096
"""These take about 200 KB of a record. A forgotten name that returns is not counted as a rejoin."""

NAMES_OVER = NAMES_KEPT // 4
"""Names are forgotten this many at a time, since each time all of them must be sorted."""


@dataclass(slots=True)
class Fence:
    """The ended incarnations: by name, and for all names that were forgotten.

    Every journal record holds them, so only the newest `NAMES_KEPT` names are remembered one by
    one. Incarnations are numbered in order, so one number, `floor`, suffices for all other names.
    """

    names: dict[LearnerName, Incarnation] = field(default_factory=dict)
    floor: Incarnation | None = None

    def end(self, name: LearnerName, incarnation: Incarnation) -> None:
        """End an incarnation, and with it all earlier ones of that name."""
        self.names[name] = max(incarnation, self.names.get(name, incarnation))
        if len(self.names) <= NAMES_KEPT + NAMES_OVER:
            return
        in_order = sorted(self.names.items(), key=_given)
        forgotten, kept = in_order[:-NAMES_KEPT], in_order[-NAMES_KEPT:]
        highest = forgotten[-1][1]
        self.floor = highest if self.floor is None else max(highest, self.floor)
        self.names = dict(kept)

    def knows(self, name: LearnerName) -> bool:
        return name in self.names

    def ended(self, name: LearnerName, incarnation: Incarnation, *, open_account: bool) -> bool:
        """Return whether an incarnation has ended; with an `open_account`, `floor` says nothing."""
        known = self.names.get(name)
        if known is not None and incarnation <= known:
            return True
        return self.floor is not None and incarnation <= self.floor and not open_account


def _given(entry: tuple[LearnerName, Incarnation]) -> tuple[int, int, LearnerName]:
    name, incarnation = entry
    return incarnation.epoch, incarnation.counter, name


@dataclass(slots=True)
class Durable:
    """The state that a restarted syncer must know: exactly the metadata of a journal record.

    `published` holds the versions that the record with number `sequence` makes durable. `stopping`
    is the reason why the run is closing, `finished` why it is over, and `reported` whether the
    supervisor has heard so. `belated_tokens` are those that closing rounds merged although earlier
    rounds should have (`commits.py`). `elapsed_s` counts against the budget (`closing.py`). `clock`
    is the fleet's learning-rate clock; it continues from its value if H or P change. `begun` is the
    beginning of the run from which incarnations count (`protocol/membership.py`).
    """

    epoch: int
    sequence: int
    round: int
    clock: float
    published: list[Published | None]
    ledger: Ledger
    leases: LeaseBook
    fence: Fence
    merges: int = 0
    staleness_sum: int = 0
    participants_sum: int = 0
    present_sum: int = 0
    belated_tokens: int = 0
    rejoins: int = 0
    stopping: str | None = None
    finished: str | None = None
    reported: bool = False
    paused: bool = False
    elapsed_s: float = 0.0
    run: str = ""
    fingerprint: str = ""
    begun: str = ""

    def make(self, fragment: int, published: Published) -> None:
        self.published[fragment] = published

    def close_books(self) -> None:
        """End all incarnations: what has no fate is lost, and their leases are free."""
        for name, book in list(self.ledger.books.items()):
            self.ledger.close(name)
            self.leases.close(name, book.processed)


def fresh(settings: RunSettings, *, fragments: int, shards: int, epoch: int) -> Durable:
    return Durable(
        epoch=epoch,
        sequence=0,
        round=0,
        clock=0.0,
        published=[None] * fragments,
        ledger=Ledger.of(fragments),
        leases=LeaseBook(shards, settings.budget_tokens, ordinary_grant_steps(settings)),
        fence=Fence(),
    )


TIME = "time"


def resume_run(
    durable: Durable, settings: RunSettings, fingerprint: str, begun: str = ""
) -> Extended | None:
    """Fit the durable state to the settings of this start; return an entry if the run is extended.

    Where the supervisor began anew, it counts incarnations from the start again: all that the
    journal knows of have ended, and none of them fences the new ones.
    """
    for what, held, wanted in (
        ("run", durable.run, settings.run),
        ("layout", durable.fingerprint, fingerprint),
    ):
        if held != wanted:
            raise JournalError(
                f"the journal is of another run: its {what} is {held}, not {wanted}; "
                "choose another folder"
            )
    if durable.begun != begun:
        durable.close_books()
        durable.fence, durable.begun = Fence(), begun
    leases = durable.leases
    before, wanted_tokens = leases.budget_tokens, settings.budget_tokens
    larger = before is not None and (wanted_tokens is None or wanted_tokens > before)
    if not larger and wanted_tokens != before:
        raise JournalError(
            f"{_progress(durable)}, and cannot be cut to {_tokens(wanted_tokens)}; go on with "
            f"budget_tokens {before}, or extend it by a larger one"
        )
    longer = durable.stopping == TIME and _time_left(durable, settings)
    over = durable.finished is not None and durable.reported
    if over and not larger and not longer:
        raise JournalError(
            f"{_progress(durable)}, and is over ({durable.finished}); to extend it, give it "
            f"{_more(durable, before)}"
        )
    if larger and not _time_left(durable, settings):
        raise JournalError(
            f"{_progress(durable)}, and has used up its {settings.budget_s} s; to extend it, give "
            f"it a budget_s above {durable.elapsed_s:.0f} as well"
        )
    leases.chunk_steps = ordinary_grant_steps(settings)
    if not larger and not longer:
        return None
    ended, leases.budget_tokens = durable.stopping, wanted_tokens
    durable.stopping, durable.finished, durable.reported = None, None, False
    return Extended(wanted_tokens, before, ended or "")


def _time_left(durable: Durable, settings: RunSettings) -> bool:
    return settings.budget_s is None or durable.elapsed_s < settings.budget_s


def _progress(durable: Durable) -> str:
    budget = durable.leases.budget_tokens
    of = "" if budget is None else f" of {_tokens(budget)}"
    return f"run {durable.run!r} has processed {durable.ledger.processed:,}{of} tokens"


def _tokens(budget: int | None) -> str:
    return "no budget" if budget is None else f"{budget:,}"


def _more(durable: Durable, budget: int | None) -> str:
    longer = f"a budget_s above {durable.elapsed_s:.0f}"
    if budget is None:
        return longer
    larger = f"budget_tokens above {budget}"
    return f"{larger}, or {longer}" if durable.stopping == TIME else larger
