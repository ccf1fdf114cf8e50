"""Commands that read the folders of runs: `islands plot`, `report` and `logs`."""

import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Literal

from islands.cli.parsing import Common
from islands.files.run_files import METRICS_FILE, TAPE_FILE
from islands.files.whole_files import save
from islands.page.messages import write_report
from islands.page.tapes import RunTapes
from islands.protocol.errors import UserError
from islands.run.records import pictures
from islands.run.records.run_curves import RunCurves, curves_of
from islands.run.records.run_values import require_folder
from islands.settings.commands import LogsOptions, PlotOptions, ReportOptions, named
from messaging.plain_text import plain

LOOK_S = 0.5


def plot(options: PlotOptions, _: Common) -> int:
    folders = tuple(dict.fromkeys(options.folders))
    names = [folder.resolve().name for folder in folders]
    titles = [
        str(folder) if names.count(name) > 1 else name
        for name, folder in zip(names, folders, strict=True)
    ]
    runs = {title: _curves_of(folder) for title, folder in zip(titles, folders, strict=True)}
    kind: Literal["png", "svg"] = "svg" if options.out.suffix == ".svg" else "png"
    save(options.out, pictures.plot(runs, options.figures, options.over, options.metric, kind))
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


def logs(options: LogsOptions, _: Common) -> int:
    folder = named(options.folder)
    require_folder(folder)
    if not (folder / TAPE_FILE).exists():
        raise UserError(f"{folder} is not the folder of a run: it has no {TAPE_FILE}")
    tapes, pause = RunTapes(folder), Event()
    if options.follow:  # it ends with who reads it, as `head` does
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    while True:
        for wall_s, line in tapes.read():
            print(line_of(wall_s, line), flush=options.follow)
        if not options.follow:
            return 0
        pause.wait(LOOK_S)


def line_of(wall_s: float, line: bytes) -> str:
    """Return an entry as time of day, writer, kind and its fields."""
    row = json.loads(line)
    at = datetime.fromtimestamp(wall_s, tz=UTC).astimezone()
    writer, kind, _ = row.pop("actor", "hub"), row.pop("kind"), row.pop("t")
    fields = [f"{name}={_shown(value)}" for name, value in row.items()]
    time = f"{at:%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"
    text = " ".join([time, f"{writer:11}", kind, *fields])
    return plain(text, 10 * len(text))  # none of it is left out


def _shown(value: object) -> str:
    if isinstance(value, str) and value and " " not in value:
        return value
    text = f"{value:.6g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text.replace(", ", ",").replace(": ", ":") if isinstance(value, list | dict) else text
