"""The figures of a run on disk, from which a restarted hub goes on."""

from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

import msgspec

from islands.files.seals import read_sealed, sealed
from islands.protocol.errors import IslandsError
from islands.protocol.messages.control import TOTAL_MAX
from islands.run.records.figures import (
    AWAY,
    FIGURES_FILE,
    STEP_ROW_INTERVAL_S,
    UNHEARD,
    Curve,
    DepartedLearners,
    LearnerFigures,
    RunFigures,
)


@dataclass(slots=True)
class KeptFigures:
    """The figures of earlier starts that a restarted hub goes on from."""

    wall_s: float = 0.0
    work_s: float = 0.0
    merges: int = 0
    merged_tokens: int = 0
    booked: int = 0
    unbooked: int = 0
    evictions: int = 0
    clock: float = 0.0
    losses: Curve = field(default_factory=Curve)
    learners: dict[str, LearnerFigures] = field(default_factory=dict)
    gone: DepartedLearners = field(default_factory=DepartedLearners)
    evaluations: list[dict[str, float]] = field(default_factory=list)


def content_of(figures: RunFigures, earlier_s: float, at_s: float) -> bytes:
    """Return the content of the file.

    Args:
        figures: what was counted until now.
        earlier_s: how long earlier starts of the hub lasted.
        at_s: seconds since this start.
    """
    learners = {
        name: replace(learner, row_s=-STEP_ROW_INTERVAL_S)
        for name, learner in figures.learners.items()
    }
    kept = KeptFigures(
        wall_s=earlier_s + at_s,
        work_s=figures.work.total_s(at_s),
        merges=figures.merges,
        merged_tokens=figures.merged_tokens,
        booked=figures.booked,
        unbooked=figures.unbooked,
        evictions=figures.evictions,
        clock=figures.clock,
        losses=figures.losses,
        learners=learners,
        gone=figures.gone,
        evaluations=[
            {name: value for name, value in row.items() if isfinite(value)}
            for row in figures.evaluations
        ],
    )
    return sealed(msgspec.json.encode(kept))


def restored(path: Path) -> tuple[float, RunFigures, bool]:
    """Return the seconds and figures of earlier starts, and whether their record is lost.

    This start has heard nobody yet: whoever was present then counts as unheard.
    """
    kept, tape = KeptFigures(), path / "tape.jsonl"
    try:
        content = read_sealed(path / FIGURES_FILE)
        lost = content is None and tape.exists() and tape.stat().st_size > 0
        kept = kept if content is None else msgspec.json.decode(content, type=KeptFigures)
    except (IslandsError, msgspec.MsgspecError):  # figures are for people: a run goes on without
        lost = True
    for learner in kept.learners.values():
        learner.count([learner])  # clamps the totals to the bounds of this version
        if not learner.gone:
            learner.status = UNHEARD
            learner.enter(kept.wall_s, AWAY)
    figures = RunFigures(
        learners=kept.learners,
        gone=kept.gone,
        away={name: None for name, one in kept.learners.items() if one.gone},
        merges=kept.merges,
        merged_tokens=min(TOTAL_MAX, kept.merged_tokens),
        booked=min(TOTAL_MAX, kept.booked),
        unbooked=kept.unbooked,
        evictions=kept.evictions,
        clock=kept.clock,
        losses=kept.losses,
    )
    figures.work.counted_s = kept.work_s
    figures.evaluations.extend(kept.evaluations)
    return kept.wall_s, figures, lost
