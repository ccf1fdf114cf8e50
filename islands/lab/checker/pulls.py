"""Rules about whom the syncer asks: each pull has one end, and nobody able is left out.

They judge by what each side recorded of its own: the syncer's pulls and merges, the learner's
phase, tokens and adoptions. The reasons that the syncer gives for leaving somebody out prove
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from islands.lab.checker.evidence import History, Limits, Pair, pair, ticket
from islands.protocol.identities import Fate, LearnerName, Phase, Status
from islands.protocol.tape import member_entries, round_entries
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.learner_entries import Adopted, Reported
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.simulation_entries import Healed

CYCLES_ASKED = 2
CYCLES_MERGED = 10
EXCHANGES_MERGED = 10
"""A learner whose own steps or answers are slow has so many of them to be merged once."""


@dataclass(slots=True)
class OpenPulls:
    """The pulls without an end, by learner and round, each with its fragment and its time."""

    of: dict[str, dict[int, tuple[int, float]]] = field(default_factory=dict)
    longest_s: dict[str, float] = field(default_factory=dict)

    def ask(self, name: str, round_: int, fragment: int, at_s: float) -> Iterator[str]:
        own = self.of.setdefault(name, {})
        if round_ in own:
            yield f"{name} was asked for round {round_} again, before it had answered"
        own[round_] = fragment, at_s

    def end(self, name: str, round_: int, at_s: float) -> Iterator[str]:
        """Take in the end of a pull; one that is not open had an end before."""
        own = self.of.get(name, {})
        if round_ not in own:
            yield f"the pull of round {round_} of {name} ended, and was not open"
            return
        fragment, asked_s = own.pop(round_)
        self.longest_s[name] = max(self.longest_s.get(name, 0.0), at_s - asked_s)
        for earlier, (of, _) in own.items():
            if of == fragment and earlier < round_:
                yield f"{name} answered round {round_} of {fragment}, and never round {earlier}"

    def follow(self, at_s: float, entry: Entry, arrived: set[str]) -> Iterator[str]:
        match entry:
            case Started():
                self.of.clear()
            case round_entries.Opened():
                for name in entry.asked:
                    yield from self.ask(name, entry.round, entry.fragment, at_s)
            case round_entries.Asked():
                facts = ticket(entry.ticket)
                yield from self.ask(facts.name, facts.round, entry.fragment, at_s)
            case round_entries.Declined() | round_entries.Arrived():
                if isinstance(entry, round_entries.Arrived):
                    arrived.add(entry.ticket)
                facts = ticket(entry.ticket)
                yield from self.end(facts.name, facts.round, at_s)
            case round_entries.FateTold() if (
                entry.fate is not Fate.APPLIED and entry.ticket not in arrived
            ):
                facts = ticket(entry.ticket)
                if facts.round in self.of.get(facts.name, {}):  # else it was overtaken
                    yield from self.end(facts.name, facts.round, at_s)
            case (
                member_entries.Linked()
                | member_entries.Unlinked()
                | member_entries.Retired()
                | round_entries.BookClosed()
            ):
                self.of.pop(entry.name, None)
            case _:
                pass


def pulls_end_once(history: History, _limits: Limits) -> Iterator[str]:
    """Each pull is answered, declined or void, once, and before a later one of its fragment."""
    pulls, arrived = OpenPulls(), set[str]()
    syncers = history.syncers
    for at_s, actor, entry in history.owned:
        if actor in syncers:
            yield from pulls.follow(at_s, entry, arrived)


@dataclass(slots=True)
class Able:
    """What is known of one learner, by its own record and by the syncer's of its link.

    Since `since_s` nothing speaks against asking it, and `missed` rounds did not; since `counted_s`
    `unmerged` ones were merged without it. Of each fragment it has the version that contains its
    last contribution (`merged`), and since when there is a step beyond its base (`worked`).
    """

    linked: bool = False
    live: bool = True
    phase: Phase = Phase.JOINING
    incarnation: str = ""
    tokens: int = 0
    stepped_s: float = 0.0
    slowest_s: float = 0.0
    held: dict[int, tuple[Pair, int]] = field(default_factory=dict)
    worked: dict[int, float] = field(default_factory=dict)
    merged: dict[int, Pair] = field(default_factory=dict)
    since_s: float | None = None
    missed: int = 0
    unmerged: int = 0
    counted_s: float = 0.0

    def begin(self, incarnation: str) -> None:
        self.incarnation, self.tokens = incarnation, 0
        self.held, self.merged, self.worked = {}, {}, {}

    def report(self, report: Reported, at_s: float) -> None:
        if report.incarnation != self.incarnation:
            self.begin(report.incarnation)
        if report.tokens > self.tokens:
            if self.phase is Phase.STEPPING and self.stepped_s:
                self.slowest_s = max(self.slowest_s, at_s - self.stepped_s)
            self.tokens, self.stepped_s = report.tokens, at_s
        for fragment, (_, base_tokens) in self.held.items():
            if self.tokens > base_tokens:
                self.worked.setdefault(fragment, at_s)
        self.phase = report.phase

    def steps(self, fragments: int) -> bool:
        """Return whether it steps, whole, over a link, and is live."""
        whole = len(self.held) == fragments
        return self.linked and self.live and whole and self.phase is Phase.STEPPING

    def owes_nothing(self) -> bool:
        """Return whether it has adopted what holds its last contributions."""
        return all(self.held.get(index, ((-1, -1), 0))[0] >= m for index, m in self.merged.items())


class Fleet:
    """All learners of a history, as its entries pass by."""

    def __init__(self, history: History, limits: Limits) -> None:
        self.learners: dict[str, Able] = {}
        self.pulls = OpenPulls()
        self.closing = self.paused = False
        self.committed: dict[int, list[Pair]] = {}
        self._arrived = set[str]()
        self._syncers = history.syncers
        self._fragments = len(limits.fragment_elements)

    def follow(self, at_s: float, actor: str, entry: Entry) -> bool:
        """Take in an entry; returns whether it is the syncer's."""
        own = actor in self._syncers
        match entry:
            case Reported():
                self._of(actor).report(entry, at_s)
            case Adopted():
                able = self._of(actor)
                if entry.incarnation != able.incarnation:
                    able.begin(entry.incarnation)
                able.held[entry.fragment] = pair(entry.version), entry.tokens
                able.worked.pop(entry.fragment, None)
            case member_entries.Linked() | member_entries.Unlinked() if own:
                able = self._of(entry.name)
                able.linked, able.live = isinstance(entry, member_entries.Linked), True
            case member_entries.StatusChanged() if own:
                self._of(entry.name).live = entry.status is Status.LIVE
            case member_entries.Retired() | round_entries.BookClosed() if own:
                self._of(entry.name).linked = False
            case round_entries.Merged() if own:
                for name in entry.participants:
                    self._of(name).merged[entry.fragment] = pair(entry.version)
            case round_entries.Committed() if own:
                self.committed.setdefault(entry.fragment, []).append(pair(entry.version))
            case Started() if own:
                self.closing = False
                for able in self.learners.values():
                    able.linked = False
            case round_entries.Closing() if own:
                self.closing = True
            case member_entries.Paused() | member_entries.Resumed():
                self.paused = isinstance(entry, member_entries.Paused)
            case _:
                pass
        if own:
            for _ in self.pulls.follow(at_s, entry, self._arrived):
                pass  # `pulls_end_once` tells these
        return own

    def _of(self, name: str) -> Able:
        return self.learners.setdefault(name, Able())

    def fresh(self, able: Able, fragment: int, staleness_max: int) -> bool:
        """Return whether a learner's base is one of those that are kept."""
        newest = self.committed.get(fragment, [])[-staleness_max - 1 :]
        return not newest or able.held[fragment][0] >= newest[0]

    def able(self) -> Iterator[tuple[str, Able]]:
        """Yield the learners that step, whole, live and linked, while the run asks anybody."""
        for name, able in self.learners.items():
            if able.steps(self._fragments) and not self.closing and not self.paused:
                yield name, able


def the_able_are_asked(history: History, limits: Limits) -> Iterator[str]:
    """Who is live, linked, whole, stepping and owes nothing is asked within two cycles of rounds.

    Its base has to be one of those that are kept, too. What a learner recorded counts once the
    syncer may know of it; a step since its base does after half a cycle.
    """
    if not limits.paced:
        return
    fleet, most = Fleet(history, limits), CYCLES_ASKED * len(limits.fragment_elements)
    opened_s: dict[int, float] = {}
    for at_s, actor, entry in history.owned:
        own = fleet.follow(at_s, actor, entry)
        able = dict(fleet.able())
        for name, one in fleet.learners.items():
            free = name in able and one.owes_nothing() and not fleet.pulls.of.get(name)
            one.since_s = (at_s if one.since_s is None else one.since_s) if free else None
            one.missed = one.missed if free else 0
        if not own or not isinstance(entry, round_entries.Opened):
            continue
        cycle_s = at_s - opened_s.get(entry.fragment, at_s)
        opened_s[entry.fragment] = at_s
        for name, one in able.items():
            if one.since_s is None or at_s - one.since_s < limits.report_late_s:
                continue
            if not fleet.fresh(one, entry.fragment, limits.staleness_max):
                continue
            late_s = min(limits.report_late_s, cycle_s / 2)
            one.missed += one.worked.get(entry.fragment, at_s) <= at_s - late_s
            if one.missed > most:
                one.missed = 0
                why = entry.left_out.get(LearnerName(name))
                yield (
                    f"{name} owed nothing since {one.since_s:.1f} s, and {most} rounds up to "
                    f"number {entry.round} at {at_s:.1f} s did not ask it ({why})"
                )


def the_able_are_merged(history: History, limits: Limits) -> Iterator[str]:
    """After healing, a learner's last merged contribution is at most 10·P merges old.

    It holds where a round waits for all, or for all of like speed (K = all or `auto`), and where an
    adoption discards no work: else a slow learner may have none each time that a round opens. One
    whose own steps or answers are slow has ten of these.
    """
    if not limits.awaits:
        return
    healing = next(((at_s, e) for at_s, _, e in history.lines if isinstance(e, Healed)), None)
    begin_s = 0.0 if healing is None else healing[0] + healing[1].recovery_s
    fleet, most = Fleet(history, limits), CYCLES_MERGED * len(limits.fragment_elements)
    for at_s, actor, entry in history.owned:
        own = fleet.follow(at_s, actor, entry)
        able = dict(fleet.able()) if at_s >= begin_s else {}
        for name, one in fleet.learners.items():
            took_part = (
                own and isinstance(entry, round_entries.Merged) and name in entry.participants
            )
            if name not in able or took_part:
                one.unmerged, one.counted_s = 0, at_s
            elif own and isinstance(entry, round_entries.Merged):
                one.unmerged += 1
        for name, one in able.items():
            answer_s = fleet.pulls.longest_s.get(name, 0.0)
            slow_s = EXCHANGES_MERGED * (one.slowest_s + answer_s) + limits.report_late_s
            if one.unmerged > most and at_s - one.counted_s > slow_s:
                yield (
                    f"{name} stepped, and {one.unmerged} merges from {one.counted_s:.1f} to "
                    f"{at_s:.1f} s were without it"
                )
                one.unmerged, one.counted_s = 0, at_s
