"""Rules about bounds: finite values (I3), contribution memory (I5), queues (I7), a proper end."""

from collections.abc import Iterator
from math import isfinite

from islands.history.entries import (
    Admitted,
    Final,
    Finished,
    LeftOver,
    Merged,
    ProcessEnded,
    ProcessKilled,
)
from islands.history.evidence import History, Limits

FLOAT32_BYTES = 4


def values_are_finite(history: History, _: Limits) -> Iterator[str]:
    """Nothing that was merged, and nothing that a run ended with, is infinite or not a number."""
    for entry in history.entries:
        if isinstance(entry, Merged):
            measured = [*entry.norms, entry.direction_norm, entry.cosine]
            if any(value is None or not isfinite(value) for value in measured):
                yield f"fragment {entry.fragment}: merging {entry.version} measured {measured}"
        elif isinstance(entry, Final) and not entry.finite:
            yield f"the run ended with values that are not finite, at {entry.at_s:.3f} s"


def contributions_fit(history: History, limits: Limits) -> Iterator[str]:
    """Contributions that wait need at most open rounds × learners × the largest fragment."""
    names = {e.name: None for e in history.entries if isinstance(e, Admitted)}
    largest = FLOAT32_BYTES * max(limits.fragment_elements)
    most = limits.open_rounds_max * len(names) * largest
    for entry in history.entries:
        if isinstance(entry, ProcessEnded | ProcessKilled) and entry.waiting_bytes_most > most:
            yield f"{entry.name} held {entry.waiting_bytes_most} bytes, allowed are {most}"


def mailboxes_are_short(history: History, limits: Limits) -> Iterator[str]:
    """No mailbox ever held more than it may."""
    for entry in history.entries:
        if isinstance(entry, ProcessEnded | ProcessKilled):
            most = entry.mailbox_most
            if most > limits.mailbox_most:
                yield f"the mailbox of {entry.name} held {most} messages"


def run_ends(history: History, limits: Limits) -> Iterator[str]:
    """No process fails, and the run ends for all, with the values that were committed last."""
    for entry in history.entries:
        if isinstance(entry, ProcessEnded) and entry.error:
            yield f"{entry.name} failed: {entry.error}"
        elif isinstance(entry, LeftOver):
            yield f"{entry.name} did not end"
    if not limits.must_finish:
        return
    finished = [e for e in history.effective if isinstance(e, Finished)]
    final = [e for e in history.entries if isinstance(e, Final)]
    if not finished or not final:
        yield "the run did not end"
        return
    newest: dict[int, str] = {}
    for entry in history.effective:
        if isinstance(entry, Merged):
            newest[entry.fragment] = entry.digest
    for index, digest in newest.items():
        if final[-1].digests[index] != digest:
            yield f"fragment {index} ended with other values than were merged last"
