"""One history of the tapes that all processes of a run left in its folder.

All processes of a host share one monotonic clock, and each tape tells where on it its times begin
(`process_began`). Of entries at the same time, the supervisor's come first, then the syncer's, then
the learners', so that a cause stands before its effect.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from islands.files.growing_files import older
from islands.files.run_files import FINAL_FILE, TAPE_FILE
from islands.files.tape_writing import HEAD
from islands.lab.checker.evidence import Limits
from islands.lab.faults.fault import FaultKind, Injected
from islands.lab.settings.chaos import SLEEPING
from islands.lab.toys.toy import BATCH_TOKENS, BATCHES_PER_SHARD
from islands.layout.leaves import Layout
from islands.protocol.identities import OBSERVER, SUPERVISOR, SYNCER
from islands.protocol.tape.entry import Entry, Line, encode_entry
from islands.protocol.tape.kinds import read
from islands.protocol.tape.learner_entries import MomentsTaken
from islands.protocol.tape.member_entries import ProcessEnded, ProcessStarted
from islands.protocol.tape.process_entries import ProcessBegan, TapeBegan
from islands.protocol.tape.round_entries import Finished, Merged
from islands.protocol.tape.simulation_entries import (
    FREEZE,
    THAW,
    Fault,
    Final,
    Healed,
    ProcessKilled,
)
from islands.run.hosting.process_output import CODE_UNKNOWN
from islands.run.records.model_files import read_values
from islands.settings.run_spec import RunPlan, RunSpec
from messaging.codec.tensors import as_buffer, digest

CHAOS = "chaos"  # the actor of injected faults in the history
HUB = "hub"
MAILBOX_MOST = 2**31
"""Real processes do not record how long their mailboxes were."""


def lines_of(folder: Path, learners: Iterable[str]) -> list[Line]:
    """Read all tapes of a run's folder; times are the loop's, and in order."""
    hub = (SUPERVISOR, HUB, OBSERVER)  # the rest are copies of what other processes recorded
    central = [line for line in _tape(folder / TAPE_FILE, HUB) if line.actor in hub]
    ordered = [(line.at_s, 0, line) for line in central]
    for rank, name in [(1, SYNCER), *((2, name) for name in learners)]:
        own = _tape(folder / "processes" / name / TAPE_FILE, name)
        ordered += [(line.at_s, rank + isinstance(line.entry, MomentsTaken), line) for line in own]
    ordered.sort(key=lambda item: item[:2])
    return [line for _, _, line in ordered]


def _tape(path: Path, name: str) -> Iterator[Line]:
    """Yield the entries of a process's tape, of all its starts, at the loop's times."""
    text = b"".join(each.read_bytes() for each in (older(path), path) if each.exists())
    origin_s = 0.0
    for at_s, actor, entry in read(text.split(b"\n")[:-1]):
        if isinstance(entry, TapeBegan):
            continue
        if isinstance(entry, ProcessBegan):
            origin_s = entry.loop_s
            if name != HUB:
                yield Line(origin_s, name, ProcessStarted(name))
        yield Line(origin_s + at_s, actor, entry)


def history_of(
    lines: Iterable[Line], injected: Sequence[Injected], healed: tuple[float, Healed]
) -> list[bytes]:
    """Encode a tape of what was recorded and what was injected, as `islands.lab.checker` judges it.

    The first end of a process after the fault that ends it is a kill, and no failure. Of one that a
    second hub took over nobody knows the exit code: once the run was over, it ended as it should.
    """
    ends = [
        (name, one.began_s, one.until_s)
        for one in injected
        for name in one.injection.victims
        if one.injection.kind.ends_process and not one.missed
    ]
    open_ends = sorted(ends, key=lambda end: end[1])
    over_s = inf
    written: list[tuple[float, str, Entry]] = []
    for line in lines:
        entry = line.entry
        if isinstance(entry, Finished):
            over_s = min(over_s, line.at_s)
        elif isinstance(entry, ProcessEnded) and line.at_s > over_s:
            unknown = (entry.error or "").startswith(CODE_UNKNOWN)
            entry = replace(entry, error="") if unknown else entry
        end = next((end for end in open_ends if _is_end(line, *end)), None)
        if end is None:
            written.append((line.at_s, line.actor, entry))
        else:
            open_ends.remove(end)
    for one in injected:
        if not one.missed:
            written += _entries(one)
    for name, at_s, _ in ends:
        written.append((at_s, CHAOS, ProcessKilled(name, silent=False, mailbox_most=0)))
    written.append((healed[0], CHAOS, healed[1]))
    written.sort(key=lambda item: item[0])
    return [HEAD, *(encode_entry(*each) for each in written)]


def _is_end(line: Line, name: str, from_s: float, to_s: float) -> bool:
    of_it = isinstance(line.entry, ProcessEnded) and line.entry.name == name
    return of_it and from_s <= line.at_s <= to_s


def _entries(one: Injected) -> Iterator[tuple[float, str, Entry]]:
    """Yield the entries of a fault; the rules must know how long a frozen victim waited in vain."""
    kind, names = one.injection.kind, list(one.injection.victims)
    if kind is not FaultKind.FREEZE:
        yield one.began_s, CHAOS, Fault(str(kind), names)
        return
    yield one.began_s, CHAOS, Fault(FREEZE, names)
    yield one.ended_s, CHAOS, Fault(THAW, names)


def final_of(
    folder: Path, layout: Layout, lines: Iterable[Line], *, whole: bool = True
) -> Line | None:
    """Return the entry of the published values with which a run ended; None if it has none.

    Where moments are merged with the parameters the file is not `whole`: it holds the parameters
    alone, so that only its numbers are looked at.
    """
    path = folder / FINAL_FILE
    newest: dict[int, Merged] = {}
    end_s = 0.0
    for line in lines:
        end_s = max(end_s, line.at_s)
        if isinstance(line.entry, Merged):
            newest[line.entry.fragment] = line.entry
    if not path.exists() or len(newest) < len(layout.fragments):
        return None
    values = read_values(path, layout)
    finite = all(bool(np.isfinite(value).all()) for value in values)
    last = [newest[index] for index in sorted(newest)]
    published = [digest(as_buffer(value)) for value in values]
    digests = published if whole else [merged.digest for merged in last]
    return Line(end_s, CHAOS, Final([merged.version for merged in last], digests, finite))


def limits_of(spec: RunSpec, plan: RunPlan, learners: Iterable[str]) -> Limits:
    """Return the limits that a run of real processes must keep.

    Their clocks are real: a host may be as busy as leaves everybody a member, and a timer late by
    as much.
    """
    settings = spec.settings
    limits = Limits.of(
        dataclasses.replace(settings, budget_tokens=None),
        plan.layout,
        batch_tokens=dict.fromkeys(learners, BATCH_TOKENS) if spec.task == SLEEPING else {},
        records_per_shard=BATCHES_PER_SHARD,
        mailbox_most=MAILBOX_MOST,
        late_s=settings.timing.scaled(settings.timing.evict_s),
    )
    return dataclasses.replace(limits, listed=False)
