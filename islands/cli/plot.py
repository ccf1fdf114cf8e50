"""`islands plot RUN...` and `islands report RUN...`: runs side by side, in a picture or a page."""

from pathlib import Path
from typing import Literal

from islands.cli.parsing import Common
from islands.files.whole_files import save
from islands.page.messages import write_report
from islands.protocol.errors import UserError
from islands.run.records.pictures import plot
from islands.run.records.run_curves import METRICS_FILE, RunCurves, curves_of
from islands.run.records.run_values import require_folder
from islands.settings.commands import PlotOptions, ReportOptions


def run(options: PlotOptions, _: Common) -> int:
    folders = tuple(dict.fromkeys(options.folders))
    names = [folder.resolve().name for folder in folders]
    titles = [
        str(folder) if names.count(name) > 1 else name
        for name, folder in zip(names, folders, strict=True)
    ]
    runs = {title: _curves_of(folder) for title, folder in zip(titles, folders, strict=True)}
    kind: Literal["png", "svg"] = "svg" if options.out.suffix == ".svg" else "png"
    save(options.out, plot(runs, options.figures, options.over, options.metric, kind))
    print(f"{options.out}: {', '.join(runs)}")
    return 0


def _curves_of(folder: Path) -> RunCurves:
    require_folder(folder)
    if not (folder / METRICS_FILE).exists():
        raise UserError(f"{folder} is not the folder of a run: it has no {METRICS_FILE}")
    curves = curves_of(folder)
    if curves.damaged:
        raise UserError(curves.damaged)
    if not curves.totals and not curves.evaluations:
        raise UserError(f"the run in {folder} has nothing to draw yet: no learner has stepped")
    return curves


def report(options: ReportOptions, _: Common) -> int:
    folders = tuple(dict.fromkeys(options.folders))
    write_report(folders, options.out)
    print(f"{options.out}: {', '.join(map(str, folders))}; open it in a browser")
    return 0
