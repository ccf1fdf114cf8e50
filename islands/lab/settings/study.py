"""Options of `islands lab study FILE`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from islands.lab.settings.fleets import check_unlike
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.settings.setting import COUNT, NOT_NEGATIVE, POSITIVE, check_ranges
from islands.settings.groups import DEFAULT_TASK


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """`islands lab study`: compares settings at equal tokens, on a virtual clock.

    Args:
        preset: algorithm whose settings are the defaults under `run`; a cell may name its own.
        task: what is trained, as package.module:Class.
        task_settings: arguments of the task, in every cell.
        seed_argument: the task's argument that is given the seed of a run too, such as that of
            the order of the data; null if it has none.
        tokens: budget of each run; all learners together process so many.
        seeds: of initial parameters, data order, step times and network; each cell runs once for
            each seed, and cells are compared seed by seed.
        run: settings of every cell. Without `total_steps`, the rate decays over the budget.
        cells: what is compared, by name. A cell may set `preset`, `learners`, `data_parallel`,
            `run`, `task_settings`, `step_s`, `noise`, `speeds`, `latency_s`, `joins` and `sweep`.
            The settings of its preset go before the study's.
        baseline: name of the cell that the others are compared with.
        metric: figure of the task's evaluation that is compared; by default its first.
        higher_is_better: whether more of the metric is better.
        within: share of the baseline's metric by which a cell may be worse and count as equal.
        workers: processes that compute side by side, on one core each.
        folder: of the results; what is there is not computed again.
        only: cells whose names contain this.
    """

    preset: Preset = Preset.DECOUPLED
    task: str = DEFAULT_TASK
    task_settings: dict[str, object] = field(default_factory=dict)
    seed_argument: str | None = None
    tokens: Annotated[int, COUNT] = 1_000_000
    seeds: Annotated[tuple[int, ...], NOT_NEGATIVE] = (0, 1)
    run: RunSettings = field(default_factory=lambda: PRESETS[Preset.DECOUPLED])
    cells: dict[str, object] = field(default_factory=dict)
    baseline: str | None = None
    metric: str | None = None
    higher_is_better: bool = False
    within: Annotated[float, POSITIVE] = 0.01
    workers: Annotated[int, COUNT] = 2
    folder: Path = Path("runs/study")
    only: str | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        check_unlike(self.seeds)
