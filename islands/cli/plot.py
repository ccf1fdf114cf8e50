"""`islands plot RUN...`: loss and evaluation of one or several runs in one picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from islands.cli.parsing import Common
from islands.files.whole_files import replace_file
from islands.protocol.errors import UserError, unusable
from islands.settings.commands import PlotOptions

if TYPE_CHECKING:
    from islands.run.records.run_curves import RunCurves


def run(options: PlotOptions, _: Common) -> int:
    """Draw the picture; return the exit code.

    Raises:
        UserError: a folder holds no run with a step, no run has the metric, matplotlib is not
            installed, or the file cannot be written.
    """
    from islands.run.records.run_curves import curves_of
    from islands.run.records.run_pictures import plot

    folders = tuple(dict.fromkeys(options.folders))
    runs = {name: curves_of(folder) for name, folder in _named(folders).items()}
    kind: Literal["png", "svg"] = "svg" if options.out.suffix == ".svg" else "png"
    picture = plot(runs, _metric(runs, options.metric), kind)
    try:
        replace_file(options.out, picture)
    except OSError as error:
        raise unusable(f"{options.out} cannot be written", error) from error
    print(f"{options.out}: {', '.join(runs)}")
    return 0


def _named(folders: tuple[Path, ...]) -> dict[str, Path]:
    """Name each run by its folder, with the whole path where two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return {
        str(folder) if names.count(name) > 1 else name: folder
        for name, folder in zip(names, folders, strict=True)
    }


def _metric(runs: "dict[str, RunCurves]", wanted: str | None) -> str | None:
    """Return the figure to draw; None if no run has been evaluated.

    Raises:
        UserError: no run has the one that is wanted.
    """
    known = list(dict.fromkeys(name for run in runs.values() for name in run.evaluations))
    if wanted is None:
        return known[0] if known else None
    if wanted not in known:
        raise UserError(
            f"metric is {wanted}; the runs' evaluations have {', '.join(known) or 'no figures'}"
        )
    return wanted
