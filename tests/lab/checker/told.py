"""Tapes written by hand, of a few lines each: one tells the truth, the next has one lie in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from islands.files.tape_writing import HEAD
from islands.lab.checker import Rule
from islands.lab.checker.evidence import History, Limits
from islands.protocol.identities import Fate, LearnerName, Phase, Role
from islands.protocol.tape.entry import Entry, encode_entry
from islands.protocol.tape.learner_entries import Adopted, Contributed, Reported
from islands.protocol.tape.member_entries import Admitted
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import Arrived, Closed, FateTold, Journal, Journalled
from tests.protocol.tape.samples import MERGED

SYNCER, SPARE, SUPERVISOR, WORLD, ANA, BEN = "syncer", "spare", "supervisor", "world", "ana", "ben"

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

Told = tuple[str, Entry] | tuple[float, str, Entry]
"""An actor and its entry; those without a time are a second apart."""


@dataclass(frozen=True, slots=True)
class Tape:
    """A tape, and all that one rule has to say against it.

    Attributes:
        name: what happens on it.
        lines: its entries.
        sentences: those of the rule; none if the tape tells of nothing that is forbidden.
        limits: what the run has to keep to.
        rule: the rule.
    """

    name: str
    lines: Sequence[Told]
    sentences: tuple[str, ...] = ()
    limits: Limits = LIMITS
    rule: Rule = lambda _, __: iter(())

    def judged(self) -> list[str]:
        return list(self.rule(history_of(self.lines), self.limits))


def told(name: str, lines: Sequence[Told], *sentences: str, **limits: object) -> Tape:
    """A tape that is to be judged `by` a rule, under changed limits."""
    return Tape(name, lines, sentences, replace(LIMITS, **limits))  # type: ignore[arg-type]


def by(rule: Rule, *tapes: Tape) -> list[Tape]:
    return [replace(tape, rule=rule) for tape in tapes]


def encoded(lines: Sequence[Told]) -> list[bytes]:
    written = [HEAD]
    for number, line in enumerate(lines):
        at_s, actor, entry = line if len(line) == 3 else (float(number), *line)
        written.append(encode_entry(at_s, actor, entry))
    return written


def history_of(lines: Sequence[Told]) -> History:
    return History.of(encoded(lines))


# --- entries --------------------------------------------------------------------------------------


def began(epoch: int = 1, actor: str = SYNCER) -> Told:
    """A syncer starts without a journal."""
    return actor, Started(epoch, resumed=False, sequence=0)


def resumed(epoch: int, sequence: int, actor: str = SYNCER) -> Told:
    """A syncer starts from this record of the journal."""
    return actor, Started(epoch, resumed=True, sequence=sequence)


def wrote(sequence: int, fragment: int | None = None, version: str = "None") -> Told:
    """The syncer begins to write a record."""
    return SYNCER, Journal(sequence, fragment, version)


def durable(sequence: int) -> Told:
    return SYNCER, Journalled(sequence)


def kept(sequence: int, fragment: int | None = None, version: str = "None") -> tuple[Told, Told]:
    return wrote(sequence, fragment, version), durable(sequence)


def merged(version: str, fragment: int = 0, **changed: object) -> Told:
    usual = {"participants": [LearnerName(ANA), LearnerName(BEN)], "digest": version}
    return SYNCER, msgspec.structs.replace(
        MERGED, version=version, fragment=fragment, **{**usual, **changed}
    )


def closed(*names: str, fragment: int = 0) -> Told:
    return SYNCER, Closed(7, fragment, [LearnerName(name) for name in names], {}, [], 1.0, 0.0)


def admitted(incarnation: str, name: str = ANA, role: Role = Role.LEARNER) -> Told:
    return SUPERVISOR, Admitted(name, role, incarnation)


def arrived(ticket: str, tokens: int = 10) -> Told:
    return SYNCER, Arrived(ticket, tokens)


def fate(ticket: str, outcome: Fate = Fate.APPLIED, tokens: int = 10, fragment: int = 0) -> Told:
    return SYNCER, FateTold(ticket=ticket, fragment=fragment, fate=outcome, tokens=tokens)


def sent(
    ticket: str,
    processed: int = 10,
    tokens: int = 10,
    *,
    base: str = "1.0",
    fragment: int = 0,
    actor: str = ANA,
) -> Told:
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
) -> Told:
    return actor, Adopted(incarnation, fragment, version, digest or version, tokens)


def reported(
    tokens: int, *leases: tuple[int, int, int], incarnation: str = "1.1", actor: str = ANA
) -> Told:
    return actor, Reported(incarnation, Phase.STEPPING, tokens, 100, list(leases))
