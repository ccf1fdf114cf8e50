"""The curves of a run in TensorBoard, over the tokens that the run had processed.

TensorBoard draws curves of one name over one another if they are of different runs, which are its
folders. So each learner has a folder, and the run has one for what is true of all of them; `loss`
is in each, and in `run` it is the mean.

=============  =====================================================================================
folder         curves
=============  =====================================================================================
`run`          loss, tokens_per_s, yield, learning_rate, `evaluation/…`, `merge/…`; the settings
each learner   loss, step_time_s, gap_s
=============  =====================================================================================

Of a crowd only the first `LEARNERS_MOST` learners have a folder; `metrics.jsonl` has them all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from tensorboardX.summary import text

from islands.cluster.event_files import EventFiles
from islands.files.rotation import LIMIT_BYTES
from islands.files.spool import Spool
from islands.settings.run import RunSettings

RUN = "run"
LEARNERS_MOST = 32
LEARNERS_SHARE = 8
"""A learner's files are turned over at this part of the limit."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TensorBoard:
    """Writes the curves of a run.

    Args:
        folder: of all of them.
        spool: writes them.
        settings: of the run, which are shown beside the curves.
        limit_bytes: at which a file is turned over.
    """

    def __init__(
        self, folder: Path, spool: Spool, settings: RunSettings, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        """Nothing is written before the first point."""
        self._folder = folder
        self._spool = spool
        self._limit_bytes = limit_bytes
        self._run = EventFiles(folder / RUN, spool, limit_bytes)
        self._learners: dict[str, EventFiles] = {}
        self._settings: RunSettings | None = settings

    def run(self, tokens: int, values: Mapping[str, float]) -> None:
        """Add points to curves of the run, which had processed so many tokens."""
        if self._settings is not None:
            self._run.add_summary(text("settings", table_of(self._settings)), 0)
            self._settings = None
        for tag, value in values.items():
            self._run.add(tag, value, tokens)

    def learner(self, name: str, tokens: int, values: Mapping[str, float]) -> None:
        """Add points to curves of a learner, when its run had processed so many tokens."""
        files = self._learners.get(name)
        if files is None:
            usable = FOLDER_NAME.fullmatch(name) and name != RUN
            if not usable or len(self._learners) >= LEARNERS_MOST:
                return
            limit_bytes = max(1, self._limit_bytes // LEARNERS_SHARE)
            files = EventFiles(self._folder / name, self._spool, limit_bytes)
            self._learners[name] = files
        for tag, value in values.items():
            files.add(tag, value, tokens)


def table_of(settings: RunSettings) -> str:
    """All settings as a table in Markdown, which is what TensorBoard shows."""
    rows = [f"| {name} | {value} |" for name, value in _flat(asdict(settings))]
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
