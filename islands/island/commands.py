"""The commands of a boundary: as the thread that steps receives them, and as messages among hosts.

`agreement.py` has the rules. A boundary waits in one case alone: a follower that is two boundaries
ahead of the leader, or may take no step, waits for the leader's word. An island that fails ends the
boundaries of each host at its next one, and nothing is carried out there.

As messages, the fields of a command travel in one, and each of its arrays in one of its own. A
value that is adopted is cut: each host is sent its share alone. Everything else is sent whole.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, get_type_hints

import msgspec

from islands.island import agreement
from islands.learner.compute import STEPPING, TO_LEAVE, TO_STEP, Arrival, BookCopy
from islands.protocol.errors import InvariantError
from islands.protocol.learner import actions


class _HostCommands:
    """The part of a rank's commands that is the same for all ranks.

    It calls `over` on the thread that steps, once no boundary follows.
    """

    agreed = True

    def __init__(self, over: Callable[[], object]) -> None:
        self.ended = False
        self.doing = STEPPING
        self.idle = False
        self.steps = 0
        self._over = over
        self._abandoned = False
        self._changed = threading.Condition()

    def abandon(self) -> None:
        """Let this host's next boundary be its last, since the island ends."""
        with self._changed:
            self._abandoned = True
            self._changed.notify()

    def wake(self) -> None:
        """What a boundary waits for comes as a command."""

    def _carried_out(
        self, entries: Sequence[agreement.LogEntry]
    ) -> list[actions.EngineAction | BookCopy]:
        """Return the entries of a boundary that its thread carries out; the end is noted here."""
        self.doing = STEPPING
        carried_out = [entry for entry in entries if not isinstance(entry, agreement.End)]
        self.ended |= len(carried_out) < len(entries)
        if self.ended:
            self._over()
        return carried_out


class LeaderCommands(_HostCommands):
    """The commands of rank 0, which numbers them and decides at which boundary they are due.

    It sends them to the followers on the loop, carries out its `own` form of each, and reports each
    later boundary's word to `decided` on the thread that steps.
    """

    def __init__(
        self,
        hosts: int,
        *,
        send: Callable[[Sequence[tuple[int, agreement.LogEntry]]], object],
        own: Callable[[agreement.LogEntry], agreement.LogEntry],
        decided: Callable[[int, int], object],
        over: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(over)
        self._send = send
        self._own = own
        self._decided = decided
        self._itinerary = agreement.Itinerary()
        self._log = agreement.CommandLog()
        self._holdings = agreement.Holdings(range(1, hosts))
        self._words = agreement.Leader()

    @property
    def boundary(self) -> int:
        return self._words.boundary

    # --- on the loop --------------------------------------------------------------------------

    def put(self, entry: agreement.LogEntry) -> None:
        """Queue a command for all hosts, unless no boundary follows; send what may be sent now."""
        with self._changed:
            if self.ended or self._abandoned:
                return
            self._log.put(entry)
        self.flow()

    def flow(self) -> None:
        """Send commands that had to wait until others were carried out."""
        with self._changed:
            issued = self._log.issue()
            self._changed.notify()
        if issued:
            self._send(issued)

    def on_held(self, rank: int, held: int) -> None:
        """Note up to which command a follower holds all."""
        with self._changed:
            self._holdings.on_held(rank, held)
            self._changed.notify()

    def differing(self, theirs: Arrival) -> Arrival | None:
        """Return rank 0's own arrival at the boundary of another's, if it was another one."""
        with self._changed:
            return self._itinerary.differing(theirs)

    def stop(self) -> None:
        """Let all hosts end at one boundary."""
        self.put(agreement.End())

    # --- on the thread that steps -------------------------------------------------------------

    def take(self, steps: int = 0, to: str = TO_STEP) -> list[actions.EngineAction | BookCopy]:
        """Come to a boundary, and return what all hosts carry out at theirs of this number."""
        self.steps = steps
        with self._changed:
            if self._abandoned:
                self.ended = True
                return []
            self._itinerary.note(Arrival(self._words.boundary, steps, to))
            done, boundary, upto = self._words.arrive(self._holdings.common(self._log.issued))
            entries = self._log.take(done)
        self._decided(boundary, upto)
        return self._carried_out([self._own(entry) for entry in entries])

    def rest(self, steps: int = 0) -> list[actions.EngineAction | BookCopy]:
        """Let no boundary of this host follow; the other hosts leave at the same place."""
        with self._changed:
            if not self.ended:
                self._itinerary.note(Arrival(self._words.boundary, steps, TO_LEAVE))
            self.ended = True
            left = self._log.drain()
        self._over()
        return [entry for entry in left if not isinstance(entry, agreement.End)]

    def sleep(self, limit_s: float | None = None) -> None:
        """Wait until a further boundary leads to a command."""
        with self._changed:
            self.idle = True
            while not (self._abandoned or self._words.has_news(self._common)):
                if not self._changed.wait(limit_s):
                    break
            self.idle = False

    @property
    def _common(self) -> int:
        return self._holdings.common(self._log.issued)


class FollowerCommands(_HostCommands):
    """The commands of another rank, which carries out what the leader's words say.

    `newest` are the boundaries that this host came to last, with that at which it waits for its
    word; they reach back to one that rank 0 has come to, if that goes on.
    """

    def __init__(self, over: Callable[[], object] = lambda: None) -> None:
        super().__init__(over)
        self.newest: tuple[Arrival, ...] = ()  # replaced as one, since the loop reads it, too
        self._words = agreement.Follower()
        self._entries: dict[int, agreement.LogEntry] = {}
        self._done = 0

    @property
    def boundary(self) -> int:
        return self._words.boundary

    # --- on the loop --------------------------------------------------------------------------

    def put(self, command: actions.EngineAction) -> None:
        raise NotImplementedError("a follower has no actor")

    def on_command(self, number: int, entry: agreement.LogEntry) -> None:
        with self._changed:
            self._entries[number] = entry

    def on_word(self, boundary: int, upto: int) -> None:
        with self._changed:
            self._words.on_word(boundary, upto)
            self._changed.notify()

    def stop(self) -> None:
        """Let this host's next boundary be its last: the leader alone ends all at one boundary."""
        self.abandon()

    # --- on the thread that steps -------------------------------------------------------------

    def take(self, steps: int = 0, to: str = TO_STEP) -> list[actions.EngineAction | BookCopy]:
        """Come to a boundary once its word is known, and return what all hosts carry out."""
        self.steps = steps
        with self._changed:
            self._note(Arrival(self._words.boundary, steps, to))
            self.idle = True
            while not (self._abandoned or self._words.knows):
                self._changed.wait()
            self.idle = False
            if self._abandoned:
                self.ended = True
                return []
            upto = self._words.arrive()
            numbers = range(self._done + 1, upto + 1)
            entries = [self._entries.pop(number) for number in numbers]
            self._done = max(self._done, upto)
        return self._carried_out(entries)

    def rest(self, steps: int = 0) -> list[actions.EngineAction | BookCopy]:
        """Let no boundary of this host follow; what was commanded, rank 0 answers."""
        with self._changed:
            if not self.ended:
                self._note(Arrival(self._words.boundary, steps, TO_LEAVE))
            self.ended = True
        self._over()
        return []

    def _note(self, arrival: Arrival) -> None:
        self.newest = (*self.newest[-1 - agreement.AHEAD :], arrival)

    def sleep(self, limit_s: float | None = None) -> None:
        """Return at once: the next boundary waits for its word."""


# --- commands as messages ---------------------------------------------------------------------

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(actions.AdoptValue, actions.AllowSteps, actions.LoadMoments, actions.PlanSnapshots),
        *(actions.ReadMoments, actions.ReadValue, actions.ResetMoments, BookCopy, agreement.End),
    )
}
"""The commands that hosts agree on; learners that gossip are on one host each."""

ARRAYS = ("payload", "sent", "pieces")
"""Names of the fields that hold arrays."""


def arrays_of(entry: agreement.LogEntry) -> tuple[memoryview, ...]:
    """Return the arrays of a command, in the order in which they are sent."""
    match entry:
        case actions.AdoptValue(sent=sent):
            return (entry.payload,) if sent is None else (entry.payload, sent)
        case actions.LoadMoments(pieces):
            return pieces
        case _:
            return ()


def with_arrays(entry: agreement.LogEntry, arrays: Sequence[memoryview]) -> agreement.LogEntry:
    """Return a command with these arrays in the place of its own, in the order of `arrays_of`."""
    match entry:
        case actions.AdoptValue():
            sent = arrays[1] if len(arrays) > 1 else None
            return replace(entry, payload=arrays[0], sent=sent)
        case actions.LoadMoments():
            return replace(entry, pieces=tuple(arrays))
        case _:
            return entry


def body_of(entry: agreement.LogEntry) -> dict[str, Any]:
    """Return the fields of a command that are no arrays, as plain values."""
    plain = [each.name for each in fields(entry) if each.name not in ARRAYS]
    return {name: msgspec.to_builtins(getattr(entry, name)) for name in plain}


def entry_of(kind: str, body: dict[str, Any], arrays: Sequence[memoryview]) -> agreement.LogEntry:
    """Return the command that a message tells."""
    made = KINDS.get(kind)
    if made is None:
        raise InvariantError(f"the leader issued {kind!r}, which this host does not know")
    hints = _hints(kind)
    try:
        known = {name: msgspec.convert(value, hints[name]) for name, value in body.items()}
        empty: dict[str, object] = {}
        if made is actions.AdoptValue:
            empty = {"payload": memoryview(b"")}
        elif made is actions.LoadMoments:
            empty = {"pieces": ()}
        entry: agreement.LogEntry = made(**known, **empty)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InvariantError(f"the leader issued a {kind} that cannot be read: {error}") from error
    return with_arrays(entry, arrays)


@cache
def _hints(kind: str) -> dict[str, Any]:
    return get_type_hints(KINDS[kind])


class Arrivals:
    """Commands that arrive at a follower in any order, each with its arrays in any order."""

    def __init__(self) -> None:
        self.held = 0
        self._heads: dict[int, tuple[str, dict[str, object], int]] = {}
        self._parts: dict[int, dict[int, memoryview]] = {}

    def on_head(self, number: int, kind: str, body: dict[str, object], parts: int) -> None:
        self._heads[number] = kind, body, parts

    def on_part(self, number: int, index: int, payload: memoryview) -> None:
        self._parts.setdefault(number, {})[index] = payload

    def complete(self) -> list[tuple[int, str, dict[str, object], tuple[memoryview, ...]]]:
        """Take out the commands that are complete, as are all before them, in their order."""
        found = []
        while (head := self._heads.get(self.held + 1)) is not None:
            kind, body, parts = head
            arrays = self._parts.get(self.held + 1, {})
            if len(arrays) < parts:
                break
            self.held += 1
            del self._heads[self.held]
            self._parts.pop(self.held, None)
            found.append((self.held, kind, body, tuple(arrays[index] for index in range(parts))))
        return found
