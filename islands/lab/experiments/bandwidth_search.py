"""The least bandwidth with which runs of the actors come to given utilisations, by bisection.

**Utilisation** is what a link leaves of that which an unlimited one allows. Learners that wait
lose time, and all of their tokens are merged: theirs is goodput. Learners that never wait step all
the time. Where values overwrite, they lose tokens in place of time: theirs is goodput × yield.
Where delay is corrected they lose neither, and are merged more rarely: theirs is contributions that
are merged per second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt

from islands.lab.experiments import fleet
from islands.lab.experiments.cells import Cell, Link, steady
from islands.lab.experiments.formulas import Job, needed_gbit_s, period_s
from islands.protocol.settings.run import Adoption, LearnerWaits, RunSettings

WARMUP_ROUNDS = 6
"""After which timeouts know how long an exchange takes, and nothing is sent twice."""

ROUNDS_LEAST, STEPS_LEAST, INTERVALS = 4, 24, 2
START_STEPS = 6.0
FACTOR = 1.3
"""Between two bandwidths that are tried, until one is enough and one is not."""

TRIALS_MOST = 40
LOWER_MOST = 4.0
"""By how many times a bandwidth that is tried may be lower than the first: runs get longer."""

SLACK = 0.0005
"""By which a share may miss its level: it is that of some ten rounds."""

UNLIMITED_GBIT_S = 1e9


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for: bandwidths for one kind of run and one model.

    Attributes:
        settings: of the runs.
        job: the model.
        learners: how many.
        utilisations: shares of what an unlimited link allows.
        within: by what share a bandwidth that is found may be too high.
    """

    settings: RunSettings
    job: Job
    learners: int
    utilisations: tuple[float, ...]
    within: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was found.

    Attributes:
        gbit_s: least bandwidth for each utilisation; infinite if none is enough.
        lowest_gbit_s: the lowest bandwidth that was tried; less may be enough where it is.
        runs: how many runs it took.
    """

    gbit_s: dict[float, float]
    lowest_gbit_s: float
    runs: int


def search(wanted: Search) -> Found:
    """Find the least bandwidths, each run being used for all utilisations."""
    known: dict[float, float] = {}
    top = 1.0 if _waits(wanted) else _share(wanted, UNLIMITED_GBIT_S)

    def share(gbit_s: float) -> float:
        if gbit_s not in known:
            known[gbit_s] = _share(wanted, gbit_s) / top
        return known[gbit_s]

    found = {
        level: least(
            share,
            level,
            known,
            begin=needed_gbit_s(wanted.settings, wanted.job, level),
            within=wanted.within,
        )
        for level in wanted.utilisations
    }
    return Found(found, min(known, default=0.0), len(known))


def least(
    share: Callable[[float], float],
    level: float,
    known: dict[float, float],
    *,
    begin: float,
    within: float,
) -> float:
    """Return the least bandwidth whose share is at a level, at most so much too high.

    Args:
        share: of a bandwidth; it grows with it.
        level: that is asked for.
        known: shares that are known by bandwidth; `share` adds to it.
        begin: where to begin if nothing is known.
        within: by what share the answer may be too high.
    """
    if begin == inf:
        return inf
    share(begin)
    for _ in range(TRIALS_MOST):
        enough = min(
            (each for each, value in known.items() if value >= level - SLACK), default=None
        )
        short = max(
            (each for each, value in known.items() if enough is None or each < enough),
            default=None,
        )
        if enough is None:
            share(max(known) * FACTOR)
        elif short is None and enough <= begin / LOWER_MOST:
            return enough
        elif short is None:
            share(enough / FACTOR)
        elif enough <= short * (1 + within):
            return enough
        else:
            share(sqrt(enough * short))
    return inf


def cell_of(wanted: Search, gbit_s: float) -> Cell:
    """Return the run that is played with a bandwidth."""
    settings, job = wanted.settings, wanted.job
    round_s = period_s(settings, job, gbit_s)
    rounds = max(
        ROUNDS_LEAST,
        STEPS_LEAST / settings.round_interval_steps(settings.fragments),
        0 if _waits(wanted) else INTERVALS * settings.fragments,
    )
    warmup = WARMUP_ROUNDS if settings.interval_steps < STEPS_LEAST else ROUNDS_LEAST / 2
    before = max(warmup, 1 if _waits(wanted) else settings.fragments)
    return replace(
        steady(wanted.learners),
        step_s=job.step_s,
        parameters=job.parameters,
        link=Link(job.latency_s, gbit_s),
        work_s=(0.0, 0.0),
        settings=settings,
        warmup_s=START_STEPS * job.step_s + before * round_s,
        measured_s=rounds * round_s,
    )


def _waits(wanted: Search) -> bool:
    return wanted.settings.learner_waits is LearnerWaits.AT_TAU


def _share(wanted: Search, gbit_s: float) -> float:
    """Play a run; returns what its utilisation is measured by."""
    cell = cell_of(wanted, gbit_s)
    figures, training = fleet.play(cell)
    if _waits(wanted):
        return figures.goodput
    if wanted.settings.adoption is Adoption.OVERWRITE:
        return figures.goodput * training.yield_share
    return training.per_merge * len(training.merges_s) / cell.measured_s
