"""An engine in memory, whose jobs a test moves on, and which can be away or refuse."""

from collections.abc import Sequence
from dataclasses import replace

from islands.engines.engine import EngineAway, Island, Job, JobState, Unplaceable


class MemoryEngine:
    """Jobs by number.

    Attributes:
        jobs: What it would list.
        given: The islands that it was given.
        ended: The jobs that it was asked to end, and whether at once.
        away: What it says instead of answering; empty if it answers.
        fault: What it raises of its own; None if it works.
        full: What it says to an island for which it has no room; empty if it has.
        asked: How often it was to place an island.
        cut: What it says once, after it has placed an island; empty for an answer.
        refused: What it says to an island that is to be placed; empty if it takes it.
    """

    poll_s = 5.0

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.given: list[Island] = []
        self.ended: list[tuple[str, bool]] = []
        self.away = ""
        self.fault: Exception | None = None
        self.full = self.cut = self.refused = ""
        self.asked = 0

    def place(self, island: Island) -> str:
        self._answer()
        self.asked += 1
        if self.full:
            raise EngineAway(self.full)
        if self.refused:
            raise Unplaceable(self.refused)
        self.given.append(island)
        self.jobs.append(Job(island.name, f"job-{len(self.given)}", JobState.WAITING))
        if self.cut:
            cut, self.cut = self.cut, ""
            raise EngineAway(cut)
        return self.jobs[-1].job

    def end(self, job: str, *, at_once: bool) -> None:
        self._answer()
        self.ended.append((job, at_once))
        self.move(job, JobState.ENDED, cancelled=True)

    def list(self) -> Sequence[Job]:
        self._answer()
        return list(self.jobs)

    def describe(self, island: Island) -> str:
        return island.script()

    def move(self, job: str, state: JobState, **more: object) -> None:
        changed = {"state": state, **more}
        self.jobs = [
            replace(each, **changed) if each.job == job else each  # type: ignore[arg-type]
            for each in self.jobs
        ]

    def _answer(self) -> None:
        if self.fault is not None:
            raise self.fault
        if self.away:
            raise EngineAway(self.away)
