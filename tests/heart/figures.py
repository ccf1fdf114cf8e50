"""The figures of one run by its folder: who was merged, how long somebody was not, how it ended."""

import json
from dataclasses import dataclass
from pathlib import Path

from islands.files.run_files import SUMMARY_FILE
from islands.protocol.identities import Role, Status
from islands.protocol.tape.kinds import read
from islands.protocol.tape.member_entries import Admitted, Evicted, Killed, Left, StatusChanged
from islands.protocol.tape.round_entries import Closing, Merged

START_S = 30.0
"""A learner that was never merged counts as left out from so long after its admission."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run.

    Args:
        participation: contributions of all merges over the learners that were live then.
        unmerged_s: longest time for which a live learner was not merged, until the run closes,
            counted from its first merge since its admission.
        unmerged_rounds: the merges in that time.
        unmerged: whose time that was.
        in_time: share of tokens that was merged before the run closed.
        bits: bits per byte of the published values, on files that are never trained on; 0 if the
            task is another one.
        first_merge_s: seconds from the start of the hub to the first merge.
        total_s: seconds from its start to its end.
    """

    participation: float
    unmerged_s: float
    unmerged_rounds: int
    unmerged: str
    in_time: float
    bits: float
    first_merge_s: float
    total_s: float


def figures_of(folder: Path) -> Figures:
    """Return the figures of a run that has ended."""
    lines = read((folder / "tape.jsonl").read_bytes().splitlines(keepends=True))
    summary = json.loads((folder / SUMMARY_FILE).read_text())
    gaps, merges = Gaps(), list[tuple[float, Merged]]()
    took_part = present = 0
    for at_s, _, entry in lines:
        gaps.follow(at_s, entry)
        if isinstance(entry, Merged) and not gaps.closing:
            merges.append((at_s, entry))
            took_part += len(entry.participants)
            present += max(len(gaps.live), len(entry.participants))
    longest_s, rounds, name = gaps.longest
    return Figures(
        participation=took_part / max(1, present),
        unmerged_s=longest_s,
        unmerged_rounds=rounds,
        unmerged=name,
        in_time=summary["yield"],
        bits=summary.get("val_bits_per_byte", 0.0),
        first_merge_s=merges[0][0] if merges else 0.0,
        total_s=summary["wall_s"],
    )


class Gaps:
    """The longest time that a live learner was not merged."""

    def __init__(self) -> None:
        self.live: dict[str, float] = {}
        self.closing = False
        self.longest = (0.0, 0, "")
        self._since: dict[str, tuple[float, int]] = {}
        self._merges = 0

    def follow(self, at_s: float, entry: object) -> None:
        match entry:
            case Admitted(name, Role.LEARNER):
                self.live[name] = at_s
                self._since.pop(name, None)
            case Evicted(name) | Left(name) | Killed(name):
                self._go(name)
            case StatusChanged(name, status) if status is not Status.LIVE:
                self._go(name)
            case Merged() if not self.closing:
                self._merges += 1
                for name in entry.participants:
                    self._end(name, at_s)
                    self.live.setdefault(name, at_s)
                    self._since[name] = at_s, self._merges
            case Closing() if not self.closing:
                self.closing = True
                for name, admitted_s in self.live.items():
                    self._since.setdefault(name, (admitted_s + START_S, 0))
                    self._end(name, at_s)
            case _:
                pass

    def _go(self, name: str) -> None:
        self.live.pop(name, None)
        self._since.pop(name, None)

    def _end(self, name: str, at_s: float) -> None:
        since_s, merges = self._since.get(name, (at_s, self._merges))
        self.longest = max(self.longest, (at_s - since_s, self._merges - merges, name))
