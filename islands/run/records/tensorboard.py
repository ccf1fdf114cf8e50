"""The curves of a run in TensorBoard, over the tokens that the run had processed.

TensorBoard overlays curves of the same name from different folders, which it calls runs. So each
learner has a folder, and the run has one for curves over all learners; `loss` is in each of them,
and in `run` it is the mean.

=============  =====================================================================================
folder         curves
=============  =====================================================================================
`run`          loss, tokens_per_s, yield, learning_rate, `evaluation/…`, `merge/…`; the settings
each learner   loss, step_time_s, gap_s
=============  =====================================================================================

Only the first `LEARNERS_MOST` learners have a folder; `metrics.jsonl` has all of them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from tensorboardX.summary import text

from islands.files.rotation import LIMIT_BYTES
from islands.files.spool import Spool
from islands.protocol.settings.run import RunSettings
from islands.run.records.event_files import EventFiles

RUN = "run"
LEARNERS_MOST = 32
LEARNERS_SHARE = 8
"""A learner's files are rotated at the run's limit divided by this."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TensorBoard:
    """Writes the curves of a run.

    Args:
        folder: holds one folder for the run and one for each learner.
        spool: writes the files on its own thread.
        settings: the run's settings, which are shown beside the curves.
        limit_bytes: size at which a file of the run is rotated.
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
        """Add points to curves of the run, at the number of tokens that it had processed."""
        if self._settings is not None:
            self._run.add_summary(text("settings", table_of(self._settings)), 0)
            self._settings = None
        for tag, value in values.items():
            self._run.add(tag, value, tokens)

    def learner(self, name: str, tokens: int, values: Mapping[str, float]) -> None:
        """Add points to curves of a learner, at the number of tokens that the run had processed."""
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
    """Return all settings as a table in Markdown, which TensorBoard renders."""
    rows = [f"| {name} | {value} |" for name, value in _flat(asdict(settings))]
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
