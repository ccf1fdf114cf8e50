"""The evidence of a tape: all entries, those of the syncer that restarts kept, spans of faults.

A syncer that restarts resumes from one record of its journal. What it had decided after that record
is undone: for the run it never happened, although the tape has it. `History.effective` holds the
syncer's entries that its last start remembers. Since a record is durable before anything in it is
sent, no other process may have seen what was undone; `order.py` checks that.

Of two syncers over one journal the one that started last owns it; one that goes on from a copy owns
that for good. What the other one decides from then on is not part of the run, so its entries are in
neither `effective` nor `owned`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

from islands.layout.leaves import Layout
from islands.protocol.settings.choices import Adoption, Trigger
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.entry import Line
from islands.protocol.tape.kinds import read
from islands.protocol.tape.learner_entries import Contributed, Reported
from islands.protocol.tape.member_entries import ProcessStarted, Promoted
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import Journal, Journalled
from islands.protocol.tape.simulation_entries import (
    DISK_MENDED,
    FAILING,
    FREEZE,
    FULL,
    SLOW_DISK,
    THAW,
    Fault,
)

Pair = tuple[int, int]
"""(epoch, number) of a version, (epoch, counter) of an incarnation."""


@lru_cache(maxsize=4096)
def pair(text: str) -> Pair:
    epoch, _, number = text.partition(".")
    return int(epoch), int(number)


@dataclass(frozen=True, slots=True)
class TicketFacts:
    """The parts of a ticket."""

    name: str
    incarnation: Pair
    epoch: int
    round: int


@lru_cache(maxsize=4096)
def ticket(text: str) -> TicketFacts:
    who, _, right = text.rpartition("@")
    name, _, incarnation = who.rpartition("/")
    epoch, _, round_ = right.partition(":")
    return TicketFacts(name, pair(incarnation), int(epoch), int(round_))


KNOWN_AFTER = 2
"""After the time of so many retransmissions the syncer knows what a learner recorded."""

DISK_FAULTS = (FULL, FAILING)
DISK_SOUND = (DISK_MENDED, SLOW_DISK)
"""What ends them: a disk has one fault at a time, and a slow one is neither full nor fails."""

Spans = Mapping[str, list[tuple[float, float]]]
"""Begin and end of each span in seconds of the tape, by the name of its victim."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a run must keep, and what it promises.

    Values may be sent `to_contributors` alone, the tape may have to show the end of the run
    (`must_finish`), and rounds may ask all that are eligible (`paced`), or wait for all of like
    speed while no adoption discards work and a base may be a version behind (`awaits`). After
    `report_late_s` the syncer knows what a learner recorded. A tape tells what became of
    checkpoints only where those in the store are `listed`.
    """

    fragment_elements: tuple[int, ...]
    open_rounds_max: int
    staleness_max: int
    quorum: int
    budget_tokens: int | None
    batch_tokens: Mapping[str, int]
    records_per_shard: int
    mailbox_most: int
    moments_wait_s: float
    to_contributors: bool = False
    must_finish: bool = True
    paced: bool = False
    awaits: bool = False
    report_late_s: float = 0.0
    listed: bool = True

    @classmethod
    def of(
        cls,
        settings: RunSettings,
        layout: Layout,
        *,
        batch_tokens: Mapping[str, int],
        records_per_shard: int,
        mailbox_most: int,
        late_s: float = 0.0,
    ) -> "Limits":
        """Return what a run of these settings must keep; its timers may be `late_s` late."""
        sizes = tuple(fragment.size for fragment in layout.fragments)
        paced = settings.trigger is Trigger.PACE and not settings.gossip.on
        keeps = settings.adoption is Adoption.DELAY_CORRECTED and settings.staleness_max > 0
        return cls(
            fragment_elements=sizes,
            open_rounds_max=settings.open_rounds_max(len(sizes)),
            staleness_max=settings.staleness_max,
            quorum=settings.quorum_least,
            budget_tokens=settings.budget_tokens,
            batch_tokens=batch_tokens,
            records_per_shard=records_per_shard,
            mailbox_most=mailbox_most,
            moments_wait_s=settings.timing.scaled(settings.timing.resend_s) + late_s,
            to_contributors=settings.trigger is Trigger.LEARNER,
            paced=paced,
            awaits=paced and keeps and not isinstance(settings.quorum, int),
            report_late_s=KNOWN_AFTER * settings.timing.scaled(settings.timing.resend_s) + late_s,
        )


@dataclass(slots=True)
class History:
    """The evidence of one tape.

    By ticket it has every contribution that a learner recorded as sent, and its `senders`;
    `totals` are all token counts that an incarnation itself recorded, `reached` the farthest
    position that it read, by its pass and shard at the end, and `undone` sentences about records
    that a restart lost although they were durable.
    """

    lines: list[Line]
    owned: list[Line] = field(default_factory=list)
    effective: list[Line] = field(default_factory=list)
    contributions: dict[str, list[Contributed]] = field(default_factory=dict)
    senders: dict[str, dict[str, None]] = field(default_factory=dict)
    totals: dict[tuple[str, Pair], dict[int, None]] = field(default_factory=dict)
    reached: dict[tuple[str, Pair, int, int], int] = field(default_factory=dict)
    undone: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> "History":
        history = cls(read(lines))
        history._find_owners()
        history._replay()
        for _, actor, entry in history.lines:
            if isinstance(entry, Contributed):
                history.contributions.setdefault(entry.ticket, []).append(entry)
                history.senders.setdefault(entry.ticket, {})[actor] = None
                who = (actor, ticket(entry.ticket).incarnation)
                history.totals.setdefault(who, {})[entry.processed] = None
            elif isinstance(entry, Reported):
                history._keep_report(actor, entry)
        return history

    def _keep_report(self, actor: str, report: Reported) -> None:
        incarnation = pair(report.incarnation)
        self.totals.setdefault((actor, incarnation), {})[report.tokens] = None
        for pass_index, shard, position in report.leases:
            key = (actor, incarnation, pass_index, shard)
            self.reached[key] = max(self.reached.get(key, 0), position)

    @property
    def syncers(self) -> set[str]:
        """The names of the actors that were a syncer."""
        return {
            actor for _, actor, e in self.lines if isinstance(e, Started) and e.sequence is not None
        }

    def _find_owners(self) -> None:
        """Leave out what a syncer recorded after another one had started.

        One that stood still while it started tells so late, and with the lower epoch of the two.
        """
        syncers, owner, heir, epoch = self.syncers, "", "", 0
        for line in self.lines:
            if isinstance(line.entry, Promoted):
                heir = line.entry.name
            if line.actor in syncers:
                if heir and owner == heir != line.actor:
                    continue
                if isinstance(line.entry, Started):
                    if owner not in ("", line.actor) and line.entry.epoch < epoch:
                        continue
                    owner, epoch = line.actor, line.entry.epoch
                elif owner not in ("", line.actor):
                    continue
            self.owned.append(line)

    def _replay(self) -> None:
        """Keep those of the syncer's entries that its journal preserved through every restart."""
        syncers = self.syncers
        kept: list[Line] = []
        marks: dict[int, int] = {}
        durable = 0
        for line in self.owned:
            entry = line.entry
            if line.actor not in syncers:
                continue
            if isinstance(entry, Started):
                if entry.resumed and entry.sequence not in marks:
                    self.undone.append(f"record {entry.sequence} was taken up and never written")
                if entry.resumed and (entry.sequence or 0) < durable:
                    self.undone.append(
                        f"record {durable} was durable, epoch {entry.epoch} began at "
                        f"{entry.sequence}"
                    )
                length = marks.get(entry.sequence or 0, 0) if entry.resumed else 0
                del kept[length:]
                marks = {number: mark for number, mark in marks.items() if mark <= length}
                durable = min(durable, entry.sequence or 0) if entry.resumed else 0
            kept.append(line)
            if isinstance(entry, Journal):
                marks[entry.sequence] = len(kept)
            elif isinstance(entry, Journalled):
                durable = max(durable, entry.sequence)
        self.effective = kept


def frozen_spans(history: History) -> Spans:
    """Return when each process was frozen: a new start of a process ends its freeze as well."""
    return _spans(history, (FREEZE,), (THAW,), restart_ends=True)


def bad_disk_spans(history: History) -> Spans:
    return _spans(history, DISK_FAULTS, DISK_SOUND, restart_ends=False)


def _spans(
    history: History, begins: Sequence[str], ends: Sequence[str], *, restart_ends: bool
) -> Spans:
    spans: dict[str, list[tuple[float, float]]] = {}
    for at_s, _, entry in history.lines:
        if isinstance(entry, Fault):
            names, fault = entry.names, entry.fault
        elif isinstance(entry, ProcessStarted) and restart_ends:
            names, fault = [entry.name], ends[0]
        else:
            continue
        for name in names:
            own = spans.setdefault(name, [])
            lasts = bool(own) and own[-1][1] == inf
            if fault in begins and not lasts:
                own.append((at_s, inf))
            elif fault in ends and lasts:
                own[-1] = (own[-1][0], at_s)
    return spans


def overlap_s(spans: Spans, name: str, from_s: float, to_s: float) -> float:
    """Return for how long the spans of a name lasted between two times."""
    return sum(
        max(0.0, min(ended_s, to_s) - max(begun_s, from_s))
        for begun_s, ended_s in spans.get(name, [])
    )
