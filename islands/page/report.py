"""The page of one or several runs in one file, which opens without a server and without a network.

It is made from the folders of the runs alone, also while one of them goes on.
"""

from collections.abc import Sequence
from pathlib import Path

from islands.files.whole_files import save
from islands.page import messages
from islands.page.site_files import single_page
from islands.page.tapes import RunTapes
from islands.run.records.run_curves import curves_of

NEWEST_BYTES = 8 * 2**20
"""Bytes of the newest part of each tape that a report is made of."""


def write_report(folders: Sequence[Path], out: Path) -> None:
    """Write the page of runs to a file."""
    runs = [run_lines(folder) for folder in folders]
    title = ", ".join(folder.resolve().name for folder in folders)
    save(out, single_page(runs, f"Islands: {title}").encode())


def run_lines(folder: Path, newest_bytes: int = NEWEST_BYTES) -> list[bytes]:
    """Return all entries of which the page of a run that does not go on is made."""
    tapes = RunTapes(folder, newest_bytes)
    entries = tapes.read()
    end_s = max((t for t, _ in entries), default=0.0)
    ended = messages.ended_run(folder, end_s)
    states = messages.of_states(ended.counted, tapes.names, end_s, ended.earlier_s)
    curves = messages.of_curves(
        ended.counted, curves_of(folder, messages.CURVE_BYTES), tapes.origin_s or 0.0
    )
    first = [{**ended.run, "whole": tapes.whole}, curves]
    return [
        *map(messages.encoded, first),
        *messages.in_time(entries, states),
        messages.encoded(ended.figures),
    ]
