"""The messages of a run to its page, while it goes on; or from its folder, for a page in one file.

All figures are those of the screen of a run in progress, and of the summary of one that has ended.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from islands.files.run_files import FIGURES_FILE, SPEC_FILE, SUMMARY_FILE
from islands.files.whole_files import read_plain, save
from islands.page.site_files import single_page
from islands.page.tapes import Entry, RunTapes
from islands.protocol.errors import UserError
from islands.run.records.figures import ABOUT, Curve, RunFigures, restored
from islands.run.records.run_curves import RunCurves, curves_of
from islands.run.records.run_values import require_folder
from islands.run.run_status import LEARNERS_SHOWN, RunStatus, run_status_of
from islands.settings.run_spec import RunPlan, RunSpec, read

if TYPE_CHECKING:
    from islands.run.coordinator import Coordinator

STATES_MOST = 4096
"""Most states of learners without a tape here that are sent, the newest of each."""
PATHS_MOST = 4

CURVE_BYTES = 4 * 2**20
"""How much is read of the metrics of a run, so that its page opens at once."""
POINTS_MOST = 600

Message = dict[str, object]
P = TypeVar("P")


def of_run(folder: Path, spec: RunSpec, plan: RunPlan) -> Message:
    """Return what the page shows of a run that does not change while it goes on."""
    fragments = [
        {
            "size": each.size,
            "paths": list(dict.fromkeys(piece.path for piece in each.pieces))[:PATHS_MOST],
        }
        for each in plan.layout.fragments
    ]
    return {
        "kind": "page.run",
        "name": spec.settings.run,
        "folder": folder.resolve().name,
        "task": spec.task,
        "preset": spec.preset,
        "model": plan.layout.summary,
        "settings": msgspec.to_builtins(spec.settings),
        "fragments": fragments,
    }


def live_figures(hub: "Coordinator", at_s: float) -> Message:
    return {**_figures(at_s, final=False), **run_status_of(hub).fields()}


def of_states(
    figures: RunFigures, own_tapes: Collection[str], now_s: float, wall_s: float
) -> Iterator[Message]:
    """Yield the states of learners that have no tape here, as their heartbeats report them.

    The tapes of processes in `own_tapes` are read, and tell more. `wall_s` is the run's own clock
    at the wall time `now_s`, and leaves out when no hub ran.
    """
    apart = [(name, done) for name, done in figures.learners.items() if name not in own_tapes]
    most = max(2, STATES_MOST // max(1, len(apart)))
    for name, done in apart[: STATES_MOST // 2]:
        for at_s, state in done.states[-most:]:
            t = round(now_s - (wall_s - at_s), 3)
            yield {"t": t, "kind": "page.state", "name": name, "state": state}


def of_curves(figures: RunFigures, curves: RunCurves, origin_s: float) -> Message:
    """Return the curves of a run as the page has them.

    The clock of the hub's last start begins at wall time `origin_s`.
    """
    at_0_s = origin_s - curves.began_s
    pace = curves.totals.get("tokens", Curve()).all()
    evaluations: dict[str, list[tuple[float, float]]] = {}
    for row in figures.evaluations:
        for name in row:
            if name not in ABOUT:
                evaluations.setdefault(name, []).append((row["tokens"], row[name]))
    return {
        "kind": "page.curves",
        "loss": thinned(figures.losses.all()),
        "pace": thinned([(round(at_0_s + at_s, 3), tokens) for _, at_s, tokens in pace]),
        "learners": {
            name: thinned([(round(at_0_s + at_s, 3), *rest) for at_s, *rest in points])
            for name, points in curves.learners.items()
        },
        "evaluations": {name: thinned(points) for name, points in evaluations.items()},
    }


def thinned(points: list[P]) -> list[P]:
    """Return at most `POINTS_MOST` of the points, evenly, with the first and the last one."""
    every = -(-len(points) // POINTS_MOST)
    return points if every <= 1 else [*points[:-1:every], points[-1]]


def in_time(entries: Sequence[Entry], messages: Iterable[Message]) -> list[bytes]:
    """Return the lines of the tape and others, in the order of their times."""
    timed = [(float(str(each["t"])), encoded(each)) for each in messages]
    return [line for _, line in sorted([*entries, *timed], key=lambda entry: entry[0])]


def encoded(message: Message) -> bytes:
    """Return an entry as a line; numbers that are not finite are null there."""
    return msgspec.json.encode(message)


def _figures(at_s: float, *, final: bool) -> Message:
    return {"kind": "page.figures", "t": round(at_s, 3), "final": final}


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The messages of a run that has ended, or whose hub has."""

    run: Message
    figures: Message
    counted: RunFigures
    earlier_s: float


def ended_run(folder: Path, at_s: float) -> EndedRun:
    """Read a run's folder.

    `at_s` is the wall time of the last that is known of the run.
    """
    require_folder(folder)
    held = read(folder)
    if held is None or not (folder / FIGURES_FILE).exists():
        lacks = SPEC_FILE if held is None else FIGURES_FILE
        raise UserError(f"{folder} is not the folder of a run: it has no {lacks}")
    spec, plan = held
    wall_s, counted, _ = restored(folder)
    summary = _summary(folder)
    status = RunStatus(
        figures=counted,
        settings=spec.settings,
        members={},
        fragments=len(plan.layout.fragments),
        elapsed_s=0.0,
        now_s=0.0,
        folder=folder,
        wall_s=wall_s,
    )
    newest = counted.losses.newest  # at the end no learner trains any more
    figures: Message = {
        **_figures(at_s, final=True),
        **status.fields(),
        "phase": "ended" if summary else "stopped",
        "tokens_per_s": _speed(counted.tokens, counted.work.total_s(0.0)),
        "left_s": None,
        "loss": None if newest is None else newest[1],
        "participation_lately": None,
        "learners": [
            line.fields()
            | {
                "health": "plain",
                "tokens_per_s": _speed(line.figures.tokens, line.figures.stepping_s),
            }
            for line in status.learners(LEARNERS_SHOWN)[0]
        ],
    }
    figures |= {name: summary[name] for name in KEPT if name in summary}
    return EndedRun(of_run(folder, spec, plan), figures, counted, wall_s)


KEPT = (
    *("tokens", "yield", "merged_at_all", "merges", "evictions", "goodput", "bytes_up"),
    *("bytes_down", "reason", "participation", "staleness_mean", "rejoins", "advice", "ledger"),
    *("data_wait", "longest_stall_s", "unbooked_tokens"),
)
"""Figures of the summary that stand in place of those that were counted on the way."""


def _summary(folder: Path) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(read_plain(folder / SUMMARY_FILE), type=dict[str, object])
    except (OSError, msgspec.MsgspecError):
        return {}


def _speed(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0


# --- a page in one file ----------------------------------------------------------------------

NEWEST_BYTES = 8 * 2**20
"""Bytes of the newest part of each tape that a report is made of."""


def write_report(folders: Sequence[Path], out: Path) -> None:
    runs = [run_lines(folder) for folder in folders]
    title = ", ".join(folder.resolve().name for folder in folders)
    save(out, single_page(runs, f"Islands: {title}").encode())


def run_lines(folder: Path, newest_bytes: int = NEWEST_BYTES) -> list[bytes]:
    """Return all entries of which the page of a run that does not go on is made."""
    tapes = RunTapes(folder, newest_bytes)
    entries = tapes.read()
    end_s = max((t for t, _ in entries), default=0.0)
    ended = ended_run(folder, end_s)
    states = of_states(ended.counted, tapes.names, end_s, ended.earlier_s)
    curves = of_curves(ended.counted, curves_of(folder, CURVE_BYTES), tapes.origin_s or 0.0)
    first = [{**ended.run, "whole": tapes.whole}, curves]
    return [*map(encoded, first), *in_time(entries, states), encoded(ended.figures)]
