"""`islands evaluate RUN`: the figures of the newest published values of a run.

The run's folder is only read, so its run may go on meanwhile.
"""

import sys
from typing import TYPE_CHECKING

import msgspec

from islands.cli.parsing import Common
from islands.protocol.errors import IslandsError
from islands.settings.run_reading import EvaluateOptions, named

if TYPE_CHECKING:
    from islands.run.records.run_model import RunModel
    from islands.run.records.run_values import RunValues


def run(options: EvaluateOptions, _: Common) -> int:
    """Evaluate, and print the figures; return the exit code.

    Raises:
        UserError: the folder holds no values, or the task cannot take them.
        IslandsError: the task's evaluation failed.
    """
    from islands.model.evaluation import attempt
    from islands.run.records.run_model import model_of
    from islands.run.records.run_values import newest_values

    found = newest_values(named(options.folder))
    model = model_of(found, options.task, options.task_settings)
    warn_of_difference(model)
    figures = attempt(
        lambda values: model.workload.evaluate(model.spec.settings, values),
        model.values,
        "the task's evaluation failed",
    )
    if isinstance(figures, IslandsError):
        raise figures
    show(found, model, figures, as_json=options.json)
    return 0


def warn_of_difference(model: "RunModel") -> None:
    """Say on the error output how the task here is another one than the run's."""
    if model.differs:
        print(f"note: the values fit, but the task differs: {model.differs}", file=sys.stderr)


def show(
    found: "RunValues", model: "RunModel", figures: dict[str, float], *, as_json: bool
) -> None:
    """Print the figures, and which values they belong to."""
    cut, versions = found.cut, [str(version) for version in found.cut.versions]
    if as_json:
        told = {
            "run": found.spec.settings.run,
            "task": model.spec.task,
            "source": str(found.source),
            "tokens": cut.tokens,
            "versions": versions,
            "ended": cut.reason or None,
            "figures": figures,
        }
        print(msgspec.json.format(msgspec.json.encode(told)).decode())  # NaN becomes null
        return
    ended = f"ended: {cut.reason}" if cut.reason else "has not ended"
    first, last = min(cut.versions), max(cut.versions)
    between = f"version {first}" if first == last else f"versions {first} to {last}"
    print(f"run {found.spec.settings.run} ({ended}), {cut.tokens:,} tokens, from {found.source}")
    print(f"{between} of {len(versions)} fragments")
    width = max(map(len, figures), default=0)
    for name, value in figures.items():
        print(f"  {name:{width}}  {value:.6g}")
    if not figures:
        print(f"the task {model.spec.task} has no figures to evaluate")
