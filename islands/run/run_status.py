"""The state of a run at one moment, as screen, page, metrics and `islands status` show it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from islands.protocol.identities import TRAINING, Phase
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor.eviction import MemberRecord
from islands.run.records.figures import ABOUT, LearnerFigures, RunFigures, in_order

if TYPE_CHECKING:
    from islands.run.coordinator import Coordinator

LEARNERS_SHOWN = 128
"""Most learners that a page or metrics show one by one; those in poor health are preferred."""

NOT_ASKED = "not asked"
"""The state of a learner that steps, and that rounds leave out."""


class Health(IntEnum):
    """The health of a learner, worst first."""

    ILL = 0
    WAITING = 1
    WELL = 2


HEALTH = {Health.WELL: "well", Health.WAITING: "warn", Health.ILL: "ill"}


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a hub's run at one moment.

    `now_s` is on the clock of `members`, `elapsed_s` since this hub began, and `wall_s` over all
    starts of it. `starts_in_s` has the seconds until a learner's process is started; `running` are
    learners whose process the hub has started.
    """

    figures: RunFigures
    settings: RunSettings
    members: Mapping[str, MemberRecord]
    fragments: int
    elapsed_s: float
    now_s: float
    folder: Path
    wall_s: float = 0.0
    starts_in_s: Mapping[str, float] = field(default_factory=dict)
    running: Collection[str] = ()

    @property
    def tokens(self) -> int:
        return self.figures.tokens

    @property
    def phase(self) -> str:
        if any(member.phase is Phase.BLOCKED for member in self.members.values()):
            return "blocked"
        if self.figures.ending:
            return "ending"
        if self.figures.work.paused:
            return "paused"
        phases = [member.phase for member in self.members.values()]
        return "training" if any(phase in TRAINING for phase in phases) else "starting"

    @property
    def share(self) -> float | None:
        """The fraction of the budget, of tokens or of time, that is used up."""
        shares = []
        if self.settings.budget_tokens is not None:
            shares.append(self.tokens / self.settings.budget_tokens)
        if self.settings.budget_s is not None:
            shares.append(self.figures.work.total_s(self.elapsed_s) / self.settings.budget_s)
        return min(1.0, max(shares)) if shares else None

    @property
    def tokens_per_s(self) -> float:
        """The recent speed of all learners together; 0 while the run is paused."""
        return 0.0 if self.figures.work.paused else self.figures.speed.per_s(self.elapsed_s)

    @property
    def left_s(self) -> float | None:
        """Seconds until the budget is used up at this speed; None if that cannot be estimated."""
        left_s = inf
        if self.settings.budget_tokens is not None and self.tokens_per_s > 0:
            left_tokens = max(0, self.settings.budget_tokens - self.tokens)
            left_s = left_tokens / self.tokens_per_s
        if self.settings.budget_s is not None:
            left_s = min(left_s, self.settings.budget_s - self.figures.work.total_s(self.elapsed_s))
        at_work = not self.figures.work.paused and not self.figures.ending
        return max(0.0, left_s) if at_work and left_s < inf else None

    @property
    def rate(self) -> float:
        return self.settings.learning_rate_at(self.figures.clock)

    @property
    def yield_so_far(self) -> float:
        return self.figures.yield_of(self.fragments, self.tokens)

    @property
    def evaluation(self) -> Mapping[str, float]:
        newest = self.figures.evaluations[-1] if self.figures.evaluations else {}
        return {name: value for name, value in newest.items() if name not in ABOUT}

    def fields(self) -> dict[str, object]:
        """Return all of it as page, `/status` and `islands status --json` tell it."""
        figures = self.figures
        lines, more = self.learners(LEARNERS_SHOWN)
        merged = None if self.settings.gossip.on else self.yield_so_far  # known at the end alone
        return {
            **_named(
                self, "phase", "tokens", "share", "tokens_per_s", "left_s", "rate", "evaluation"
            ),
            **_named(figures, "loss", "merges", "participation", "evictions", "warning", "ending"),
            **_named(figures, "bytes_up", "bytes_down"),
            "run": self.settings.run,
            "elapsed_s": self.wall_s,
            "evaluated_tokens": figures.evaluations[-1]["tokens"] if figures.evaluations else None,
            "yield": merged,
            "merged_at_all": merged,
            "participation_lately": figures.participation_lately(self.elapsed_s),
            "goodput": figures.goodput(self.wall_s),
            "learners": [line.fields() for line in lines],
            "more": more,
        }

    def lines(self) -> list["LearnerLine"]:
        return [self._line(name, one) for name, one in self.figures.learners.items()]

    def learners(self, most: int) -> tuple[list["LearnerLine"], int]:
        """Return the learners to show, as `first_lines` does, and how many more there are."""
        every = self.lines()
        first = first_lines(every, most)
        return first, len(every) - len(first)

    def _line(self, name: str, figures: LearnerFigures) -> "LearnerLine":
        member = self.members.get(name)
        state, health = state_of(figures, None if member is None else member.phase)
        away = ""
        if figures.gone and name in self.starts_in_s:
            away = f"back in {self.starts_in_s[name]:.0f} s"
        elif figures.gone and name in self.running and self.phase != "ending":
            away = "starts again"
        here = member is not None and not figures.gone
        silent_s = self.now_s - member.heard_s if here and member is not None else None
        return LearnerLine(name, state, health, figures, silent_s, away)


@dataclass(frozen=True, slots=True)
class LearnerLine:
    """One learner, and its state in one word.

    It was last heard `silent_s` ago; None if it is absent. `away` says when it comes back.
    """

    name: str
    state: str
    health: Health
    figures: LearnerFigures
    silent_s: float | None
    away: str = ""

    @property
    def tokens_per_s(self) -> float:
        steps = self.state in (*TRAINING, NOT_ASKED)
        return self.figures.tokens_per_s if steps else 0.0

    def fields(self) -> dict[str, object]:
        done = self.figures
        return {
            **_named(self, "name", "state", "silent_s", "tokens_per_s"),
            **_named(done, "steps", "tokens", "loss", "metrics", "sends", "incarnations"),
            **_named(done, "step_time_s", "stepping_s", "bytes_up", "bytes_down", "hardware"),
            "health": HEALTH[self.health],
            "longest_stall_s": done.gaps.largest_s,
        }


def _named(of: object, *names: str) -> dict[str, object]:
    return {name: getattr(of, name) for name in names}


def first_lines(every: Sequence[LearnerLine], most: int) -> list[LearnerLine]:
    """Return the learners to show, ordered by name; those in poor health are preferred."""
    first = sorted(every, key=lambda line: (line.health, in_order(line.name)))[:most]
    return sorted(first, key=lambda line: in_order(line.name))


def state_of(figures: LearnerFigures, phase: Phase | None) -> tuple[str, Health]:
    """Return what a learner is doing or what is wrong with it, and its health."""
    if figures.status in ("evicted", "suspect", "stalled"):
        return figures.status, Health.ILL
    if figures.status != "live" or phase is None:
        return figures.status, Health.WAITING
    if figures.diverged:
        return "diverged", Health.ILL
    if figures.left_out and phase in TRAINING:
        return NOT_ASKED, Health.ILL
    return phase.value, Health.WELL if phase in TRAINING else Health.WAITING


def run_status_of(hub: "Coordinator") -> RunStatus:
    return RunStatus(
        figures=hub.folder.figures,
        settings=hub.spec.settings,
        members=hub.members,
        fragments=len(hub.plan.layout.fragments),
        elapsed_s=hub.elapsed_s,
        now_s=hub.now_s,
        folder=hub.settings.folder,
        wall_s=hub.wall_s,
        starts_in_s=hub.cluster.starts_in_s(),
        running=hub.cluster.learners(),
    )
