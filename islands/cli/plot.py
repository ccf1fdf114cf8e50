"""`islands plot RUN...`: figures of one or several runs in one picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from islands.cli.parsing import Common
from islands.files.whole_files import replace_file
from islands.protocol.errors import UserError, unusable
from islands.settings.commands import PlotOptions

if TYPE_CHECKING:
    from islands.run.records.run_curves import RunCurves


def run(options: PlotOptions, _: Common) -> int:
    """Draw the picture; return the exit code."""
    from islands.run.records.pictures import plot

    folders = _named(tuple(dict.fromkeys(options.folders)))
    runs = {name: _curves_of(folder) for name, folder in folders.items()}
    kind: Literal["png", "svg"] = "svg" if options.out.suffix == ".svg" else "png"
    picture = plot(runs, options.figures, options.over, options.metric, kind)
    try:
        replace_file(options.out, picture)
    except OSError as error:
        raise unusable(f"{options.out} cannot be written", error) from error
    print(f"{options.out}: {', '.join(folders)}")
    return 0


def _named(folders: tuple[Path, ...]) -> dict[str, Path]:
    """Name each run by its folder, with the whole path where two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return {
        str(folder) if names.count(name) > 1 else name: folder
        for name, folder in zip(names, folders, strict=True)
    }


def _curves_of(folder: Path) -> "RunCurves":
    """Read the curves of a run."""
    from islands.run.records.run_curves import METRICS_FILE, curves_of
    from islands.run.records.run_values import require_folder

    require_folder(folder)
    if not (folder / METRICS_FILE).exists():
        raise UserError(f"{folder} is not the folder of a run: it has no {METRICS_FILE}")
    found = curves_of(folder)
    if found.damaged:
        raise UserError(found.damaged)
    if not found.totals and not found.evaluations:
        raise UserError(f"the run in {folder} has nothing to draw yet: no learner has stepped")
    return found
