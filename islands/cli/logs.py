"""`islands logs RUN`: what the processes of a run have written on their tapes, as one text."""

import json
import signal
from datetime import UTC, datetime
from threading import Event

from islands.cli.parsing import Common
from islands.page.tapes import RunTapes
from islands.protocol.errors import UserError
from islands.run.records.run_values import require_folder
from islands.settings.commands import LogsOptions, named
from messaging.plain_text import plain

LOOK_S = 0.5


def run(options: LogsOptions, _: Common) -> int:
    folder = named(options.folder)
    require_folder(folder)
    if not (folder / "tape.jsonl").exists():
        raise UserError(f"{folder} is not the folder of a run: it has no tape.jsonl")
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
