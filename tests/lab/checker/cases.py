"""Short tapes: truths, and lies that change one line of them, each with what its rule says."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from islands.files.tape_writing import HEAD
from islands.lab.checker import Rule
from islands.lab.checker.evidence import History, Limits
from islands.protocol.identities import Fate, LearnerName, Phase, Role
from islands.protocol.tape import round_entries as rounds
from islands.protocol.tape.entry import Entry, encode_entry
from islands.protocol.tape.learner_entries import Adopted, Contributed, Reported
from islands.protocol.tape.member_entries import Admitted, ProcessStarted
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.simulation_entries import Fault
from tests.protocol.tape.samples import MERGED

SYNCER, SPARE, SUPERVISOR, WORLD, ANA, BEN = "syncer", "spare", "supervisor", "world", "ana", "ben"
ONE, TWO, OF_BEN = "ana/1.1@1:1", "ana/1.1@1:2", "ben/1.2@1:1"

LIMITS = Limits(
    fragment_elements=(4, 2),
    open_rounds_max=2,
    staleness_max=1,
    quorum=2,
    budget_tokens=None,
    batch_tokens={ANA: 10, BEN: 10},
    records_per_shard=8,
    mailbox_most=3,
    moments_wait_s=1.0,
    must_finish=False,
)

Line = tuple[str, Entry] | tuple[float, str, Entry]
"""An actor and its entry; those without a time are a second apart."""


@dataclass(frozen=True, slots=True)
class Case:
    """A tape, and all that one rule has to say against it; a lie's name is what it says."""

    name: str
    lines: Sequence[Line]
    sentences: tuple[str, ...]
    limits: Limits
    rule: Rule = lambda _, __: iter(())

    def judged(self) -> list[str]:
        return list(self.rule(History.of(encoded(self.lines)), self.limits))


def truth(name: str, *lines: Line, **limits: object) -> Case:
    return Case(name, lines, (), replace(LIMITS, **limits))  # type: ignore[arg-type]


def lie(*parts: str | Line, **limits: object) -> Case:
    """The sentences of a rule, then the lines that it says them of."""
    sentences = tuple(part for part in parts if isinstance(part, str))
    lines = [part for part in parts if not isinstance(part, str)]
    return Case("; ".join(sentences), lines, sentences, replace(LIMITS, **limits))  # type: ignore[arg-type]


def by(rule: Rule, *cases: Case) -> list[Case]:
    return [replace(case, rule=rule) for case in cases]


def encoded(lines: Sequence[Line]) -> list[bytes]:
    written = [HEAD]
    for number, line in enumerate(lines):
        at_s, actor, entry = line if len(line) == 3 else (float(number), *line)
        written.append(encode_entry(at_s, actor, entry))
    return written


# --- entries --------------------------------------------------------------------------------------


def at(at_s: float, line: Line) -> Line:
    return (at_s, *line[-2:])


def began(epoch: int = 1, actor: str = SYNCER) -> Line:
    """A syncer starts without a journal."""
    return actor, Started(epoch, resumed=False, sequence=0)


def resumed(epoch: int, sequence: int, actor: str = SYNCER) -> Line:
    """A syncer starts from this record of the journal."""
    return actor, Started(epoch, resumed=True, sequence=sequence)


def wrote(sequence: int, fragment: int | None = None, version: str = "None") -> Line:
    """The syncer begins to write a record."""
    return SYNCER, rounds.Journal(sequence, fragment, version)


def durable(sequence: int) -> Line:
    return SYNCER, rounds.Journalled(sequence)


def kept(sequence: int, fragment: int | None = None, version: str = "None") -> tuple[Line, Line]:
    return wrote(sequence, fragment, version), durable(sequence)


def merged(version: str, fragment: int = 0, names: str = "ana ben", **changed: object) -> Line:
    usual = {"participants": list(map(LearnerName, names.split())), "digest": version}
    return SYNCER, msgspec.structs.replace(
        MERGED, version=version, fragment=fragment, **{**usual, **changed}
    )


def closed(*names: str, fragment: int = 0) -> Line:
    arrived = [LearnerName(name) for name in names]
    return SYNCER, rounds.Closed(7, fragment, arrived, {}, [], 1.0, 0.0)


def admitted(incarnation: str, name: str = ANA, role: Role = Role.LEARNER) -> Line:
    return SUPERVISOR, Admitted(name, role, incarnation)


def arrived(ticket: str) -> Line:
    return SYNCER, rounds.Arrived(ticket, 10)


def fate(ticket: str, outcome: Fate = Fate.APPLIED, tokens: int = 10, fragment: int = 0) -> Line:
    return SYNCER, rounds.FateTold(ticket=ticket, fragment=fragment, fate=outcome, tokens=tokens)


def sent(
    ticket: str,
    processed: int = 10,
    tokens: int = 10,
    *,
    base: str = "1.0",
    fragment: int = 0,
    actor: str = ANA,
) -> Line:
    """A learner sends a contribution, of steps with 10 tokens each."""
    return actor, Contributed(ticket, fragment, base, tokens // 10, tokens, processed)


def adopted(
    version: str,
    tokens: int = 0,
    *,
    incarnation: str = "1.1",
    fragment: int = 0,
    actor: str = ANA,
    digest: str | None = None,
) -> Line:
    return actor, Adopted(incarnation, fragment, version, digest or version, tokens)


def reported(
    tokens: int, *leases: tuple[int, int, int], incarnation: str = "1.1", actor: str = ANA
) -> Line:
    return actor, Reported(incarnation, Phase.STEPPING, tokens, 100, list(leases))


def finished(
    *ledger: rounds.Row, reason: str = "drained", processed: dict[str, int] | None = None
) -> Line:
    return SYNCER, rounds.Finished(reason, list(ledger), processed)


def book_closed(name: str, incarnation: str, processed: int = 0) -> Line:
    return SYNCER, rounds.BookClosed(name, incarnation, processed)


def started(name: str) -> Line:
    return WORLD, ProcessStarted(name)


def struck(at_s: float, fault: str, *names: str) -> Line:
    return at_s, WORLD, Fault(fault, list(names))
