"""The files of a run: tape, metrics, TensorBoard events, log, and the figures for a summary.

`metrics.jsonl` is the source of truth; TensorBoard and the other sinks (`islands.sinks`) get its
rows. docs/metrics.md has the fields of each `kind`: `step` (for a learner, at most one a second),
`run` (one a second), `merge`, `evaluation`, and `event` for what a picture marks (`event_of`).
"""

import json
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from islands.files.folder_lock import make_private
from islands.files.growing_files import LIMIT_BYTES, RotatingFile, Spool, nobody
from islands.files.run_files import (
    FIGURES_FILE,
    LOG_FILE,
    METRICS_FILE,
    SETTINGS_FILE,
    SUMMARY_FILE,
    TAPE_FILE,
    VERSIONS_FILE,
)
from islands.files.tape_writing import FileTape
from islands.files.whole_files import replace_file
from islands.model.evaluation import Judged
from islands.protocol.errors import UNFORESEEN, IslandsError, UserError, not_installed, unusable
from islands.protocol.identities import Role, Status
from islands.protocol.messages.control import TOTAL_MAX, Note, StepFigures
from islands.protocol.messages.membership import NOT_FINITE
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape import learner_entries as learners
from islands.protocol.tape import member_entries as members
from islands.protocol.tape import process_entries as processes
from islands.protocol.tape import round_entries as rounds
from islands.protocol.tape.entry import Entry, Logged
from islands.protocol.tape.kinds import decode_fields
from islands.run.records.figures import (
    AWAY,
    BOARD_FOLDER,
    POINTS_KEPT,
    STEP_ROW_INTERVAL_S,
    UNHEARD,
    LearnerFigures,
    content_of,
    restored,
)
from islands.run.records.notes import is_kept
from islands.run.records.summary import SyncerShare
from islands.run.records.tape_sentences import sentence
from messaging.clock import WallClock

if TYPE_CHECKING:
    from islands.sinks.sink import Sink

PACKAGES = ("islands", "jax", "jaxlib", "flax", "optax", "numpy", "numba", "msgpack", "aiohttp")
KEEP_INTERVAL_S = 5.0
KEPT_BYTES_PER_S = 2**20
"""Figures are kept at this rate at most, so less often for a large fleet: a MiB takes some 7 ms, in
which a hub does nothing else."""
PICTURE_FILE = "summary.png"
GROWING = (TAPE_FILE, METRICS_FILE, LOG_FILE)

STARTING, STEPPING, PAUSED, DIVERGED = "starting", "stepping", "paused", "diverged"
STATES = {
    Status.SUSPECT: AWAY,
    Status.EVICTED: AWAY,
    Status.STALLED: AWAY,
    Status.LEFT: "left",
    Status.LIVE: STEPPING,
}
"""The state that the picture shows for each status that the supervisor gives a learner."""

DATA_ENDED = (
    "the data has ended: none of the {} shards of a pass has a batch, so nobody steps; stop the "
    "run, which keeps its values, or have batches begin anew in each pass (shard.pass_index)"
)

UNREADABLE = (msgspec.MsgspecError, RecursionError, *UNFORESEEN)
"""What decoding a faulty note raises: a field is missing, of another type, too deep, too large."""


class RunFolder:
    """The files of one run. It is also the tape on which all actors record.

    `fragments` is P of the plan, by which merged tokens are compared with processed ones. A file
    that grows with the run is rotated at `limit_bytes`. `say` is called when a file cannot be
    written, and when it can again, also from another thread.
    """

    def __init__(
        self,
        path: Path,
        settings: RunSettings,
        *,
        fragments: int = 1,
        extend: bool = False,
        limit_bytes: int = LIMIT_BYTES,
        say: Callable[[str], object] = nobody,
    ) -> None:
        self.path = path
        self._settings = settings
        self._fragments = fragments
        self._wall = WallClock()
        self.earlier_s, self.figures, lost = restored(path)
        self.figures.settled_yield = None  # a run that goes on has more to merge
        kept_s, now_s = self.figures.kept_s, self._wall.now_s()
        self._outage_s = max(0.0, now_s - kept_s) if kept_s else 0.0
        self._warnings: dict[str, str] = {}
        self._shown = ""
        self._point_s = -STEP_ROW_INTERVAL_S
        self._keep_s = 0.0
        self._heard = self.figures.heard  # a running sum: no row has to visit all learners
        self.listeners: list[Callable[[], object]] = []
        """Callbacks for whenever the figures may have changed; they must be quick."""
        self.hearers: list[Callable[[str, Entry], object]] = []
        """Callbacks for each entry of the log, with its actor; they must be quick."""
        self.compiling: Callable[[], bool] = lambda: False
        """Whether processes beside this one import or compile now."""
        if (path / SUMMARY_FILE).exists() and not extend:
            raise UserError(
                f"{path} holds a run that has ended; choose another folder, or go on with a "
                "larger run.budget_tokens and --extend"
            )
        try:
            make_private(path)
            text = msgspec.json.format(msgspec.json.encode(settings))
            replace_file(path / SETTINGS_FILE, text)
            replace_file(path / VERSIONS_FILE, (json.dumps(versions(), indent=2) + "\n").encode())
            for name in GROWING:
                (path / name).touch()
        except OSError as error:
            raise unusable(f"the run folder {path} cannot be written", error) from error
        self._say = say
        self._spool = Spool(path, say)
        self._tape = FileTape(path / TAPE_FILE, self._spool, limit_bytes=limit_bytes)
        self._metrics = self._spool.inlet(RotatingFile(path / METRICS_FILE, limit_bytes))
        self._log = self._spool.inlet(RotatingFile(path / LOG_FILE, limit_bytes))
        self._sinks = self._open_sinks(limit_bytes)
        if lost:
            self.write(0.0, "hub", processes.Damaged([FIGURES_FILE]))
        self.keep(0.0)

    def _open_sinks(self, limit_bytes: int) -> "list[Sink]":
        try:
            from islands.sinks.tensorboard import TensorBoard
        except ImportError:
            missing = not_installed("that", "tensorboard")
            self._say(f"{self.path} gets no curves for TensorBoard: {missing}")
            return []
        return [TensorBoard(self.path / BOARD_FOLDER, self._spool, self._settings, limit_bytes)]

    # --- the tape -----------------------------------------------------------------------------

    def write(self, at_s: float, actor: str, entry: Entry) -> None:
        """Write one entry to the tape, and to log, metrics and figures if it concerns them."""
        self._tape.write(at_s, actor, entry)
        if isinstance(entry, Logged):
            self._log_entry(at_s, actor, entry)
            self._show(at_s, actor, entry)
        match entry:
            case members.Admitted(name, Role.LEARNER):
                self._on_admitted(name, at_s)
            case members.Recognised(name):
                self._on_recognised(name, at_s)
            case members.StatusChanged(name, status):
                self._on_status(name, at_s, status)
            case members.Evicted():
                self._on_status(entry.name, at_s, Status.EVICTED)
            case members.Left(name):
                self._on_status(name, at_s, Status.LEFT)
            case members.Diverged(name):
                self._on_diverged(name, at_s)
            case rounds.Merged():
                self._on_merged(at_s, entry)
            case rounds.LeftOut(name) | rounds.AskedAgain(name) if name in self.figures.learners:
                asked = isinstance(entry, rounds.AskedAgain)
                self.figures.learners[name].left_out = "" if asked else entry.reason
            case members.Adapted(name, precision) if name in self.figures.learners:
                self.figures.learners[name].sends = precision
            case members.Paused():
                self._on_paused(at_s, paused=True)
            case members.Resumed():
                self._on_paused(at_s, paused=False)
                self._warn("divergence", "")
            case rounds.Closing(reason):
                self.figures.ending = reason
            case processes.Damaged(files):
                names = ", ".join(files)
                self._say(f"{actor}: damaged or missing: {names}; the run goes on without")
            case processes.RunDiverged():
                self._warn("divergence", sentence(actor, entry))
            case rounds.DataEnded(passes, shards):
                self._warn("data", DATA_ENDED.format(shards) if passes else "")
            case _:
                pass
        event = event_of(actor, entry)
        if event is not None:
            what, name = event
            self._row("event", at_s, {"event": what, "name": name, "run_tokens": self.tokens})
        self._notify()

    @property
    def starting(self) -> bool:
        """Whether processes here import or compile: that one stands still is no news then."""
        return not self.figures.work.begun or self.compiling()

    def _show(self, at_s: float, actor: str, entry: Entry) -> None:
        """Add an entry's sentence to the shown events, unless it repeats the last one."""
        if isinstance(entry, members.Left) and entry.reason == NOT_FINITE:
            return  # its entry `Diverged` has said that it begins again
        if isinstance(entry, members.StoodStill) and self.starting:
            return
        if isinstance(entry, members.StatusChanged):
            shown = self.figures.learners.get(entry.name)
            if shown is not None and shown.status == entry.status.value:
                return  # supervisor and syncer each record it
        known = None
        if isinstance(entry, members.Admitted):
            known = self.figures.learners.get(entry.name)
            if known is not None and known.diverged:
                return
        text = sentence(actor, entry, known=known is not None and known.incarnations > 0)
        if text and text != self._shown:
            self._shown = text
            self.figures.events.append(f"{at_s:7.1f} s  {text}")

    def _on_paused(self, at_s: float, *, paused: bool) -> None:
        self.figures.work.pause(at_s, paused=paused)
        for learner in self.figures.learners.values() if paused else ():
            if learner.status == "live":
                learner.enter(self.earlier_s + at_s, PAUSED)

    def _on_admitted(self, name: str, at_s: float) -> None:
        figures = self.figures.admit(name)
        figures.enter(self.earlier_s + at_s, STARTING)
        figures.join(self.earlier_s + at_s)
        figures.incarnations += 1
        figures.status, figures.loss = "live", None  # the loss before its absence is outdated
        figures.left_out, figures.unmerged = "", 0
        figures.metrics = dict.fromkeys(figures.metrics)
        self.figures.update_loss(name)

    def _on_recognised(self, name: str, at_s: float) -> None:
        """Note that a member of an earlier start is heard; its next steps tell what it does."""
        figures = self.figures.learners.get(name)
        if figures is None:
            return
        if figures.status == Status.EVICTED.value:  # it was admitted again, and that was not kept
            figures.incarnations += 1
        if figures.status in (UNHEARD, Status.EVICTED.value):
            figures.status = Status.LIVE.value
            figures.enter(self.earlier_s + at_s, STARTING)
            figures.present_s += self._outage_s  # it lived on while there was no hub
            figures.join(self.earlier_s)

    def _on_diverged(self, name: str, at_s: float) -> None:
        figures = self.figures.learners.get(name)
        if figures is not None:
            figures.diverged = True
            figures.enter(self.earlier_s + at_s, DIVERGED)

    def _on_status(self, name: str, at_s: float, status: Status) -> None:
        """Apply a new status that supervisor or syncer gave a member; only learners have a row."""
        self.figures.evictions += status is Status.EVICTED
        figures = self.figures.learners.get(name)
        if figures is None:
            return
        figures.status = status.value
        figures.enter(self.earlier_s + at_s, STATES[status])
        if status.ended:
            figures.leave(self.earlier_s + at_s)
            self.figures.depart(name)

    def _warn(self, kind: str, text: str) -> None:
        self._warnings[kind] = text
        self.figures.warning = "; ".join(filter(None, self._warnings.values()))

    def _log_entry(self, at_s: float, actor: str, entry: Entry) -> None:
        at = datetime.fromtimestamp(self._wall.now_s(), UTC).isoformat().replace("+00:00", "Z")
        fields = msgspec.to_builtins(entry)
        kind = fields.pop("kind")
        row = {"at_s": round(at_s, 3), "actor": actor, **fields, "event": kind, "timestamp": at}
        self._log.add(msgspec.json.encode(row) + b"\n")
        for hear in self.hearers:
            hear(actor, entry)

    def _notify(self) -> None:
        trouble = self._spool.trouble
        if trouble != self._warnings.get("disk", ""):
            self._warn("disk", trouble)
        for listen in list(self.listeners):
            listen()

    def _on_merged(self, at_s: float, merged: rounds.Merged) -> None:
        figures = self.figures
        figures.clock, figures.last_merge_s = merged.clock, at_s
        figures.merges = merged.run_merges or figures.merges + 1
        applied = merged.run_applied or figures.merged_tokens + merged.merged_tokens
        figures.merged_tokens = min(TOTAL_MAX, applied)
        figures.booked = min(TOTAL_MAX, merged.run_processed or figures.booked)
        figures.count_participation(at_s, merged.contributions, merged.learners)
        behind, belated = merged.behind or [], merged.belated or []
        whole = len(merged.participants) == len(behind) == merged.contributions
        if whole:  # a note of a merge has the first participants alone
            names = merged.participants
            tokens = dict[str, int](zip(names, merged.tokens, strict=False))
            late = dict[str, int](zip(names, belated, strict=False))
            figures.count_merge(dict(zip(names, behind, strict=True)), tokens, late)
        row = {
            "run_tokens": self.tokens,
            "merges": figures.merges,
            "fragment": merged.fragment,
            "contributions": merged.contributions,
            "participation": merged.contributions / max(1, merged.learners),
            "staleness": sum(behind) / len(behind) if behind else None,
            "direction_norm": nan if merged.direction_norm is None else merged.direction_norm,
            "cosine": nan if merged.cosine is None else merged.cosine,
            "learning_rate": self._settings.learning_rate_at(figures.clock),
            "yield": figures.yield_of(self._fragments, self.tokens),
        }
        self._row("merge", at_s, row)

    # --- learners and evaluations -------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """`RunFigures.tokens`, without a visit to all learners."""
        return max(self._heard, self.figures.booked)

    def on_figures(self, name: str, at_s: float, report: StepFigures) -> None:
        """Record the report of a learner; ignore one that cannot be true."""
        if not report.believable or report.process in self.figures.gone.processes:
            return
        known = name in self.figures.learners
        figures = self.figures.learners.setdefault(name, LearnerFigures())
        if not known:  # a start that was killed before it kept its figures had admitted it
            figures.status, figures.incarnations = Status.LIVE.value, 1
            figures.join(self.earlier_s + at_s)
        before = figures.tokens
        anew_s = self.figures.anew_s
        figures.add_report(report, inf if anew_s is None else self.earlier_s + at_s - anew_s)
        self._heard = min(TOTAL_MAX, max(0, self._heard + figures.tokens - before))
        self._step_row(name, at_s, figures, report)
        if at_s >= self._keep_s:
            self.keep(at_s)

    def keep(self, at_s: float) -> None:
        """Save what was counted until now, for a later start of this hub."""
        content = content_of(self.figures, self.earlier_s + at_s, at_s, self._wall.now_s())
        self._spool.replace(self.path / FIGURES_FILE, content)
        self._keep_s = at_s + max(KEEP_INTERVAL_S, len(content) / KEPT_BYTES_PER_S)

    def draw(self, at_s: float) -> None:
        """Draw the picture of the run as it is now, or was in the end; it takes a second."""
        from islands.run.records.pictures import picture_of

        end_s = self.earlier_s + at_s
        share = self.figures.yield_of(self._fragments, self.tokens)
        try:
            picture = picture_of(self.figures, self._settings, end_s, share)
        except UserError as error:
            self._say(f"{self.path} gets no {PICTURE_FILE}: {error}")
            return
        self._spool.replace(self.path / PICTURE_FILE, picture)

    def on_note(self, name: str, role: Role, at_s: float, note: Note) -> None:
        """Copy a notable entry from another process's tape to this one, at this host's time."""
        if not is_kept(role, note):
            return
        try:
            entry = decode_fields(note.kind, note.fields)
            self.write(at_s, name, entry)
        except UNREADABLE:
            return  # a note is for people; one that cannot be read harms nothing
        if isinstance(entry, processes.Evaluation):
            judged = Judged(entry.clock, entry.tokens, entry.took_s)
            self.evaluation(at_s, judged, entry.figures)

    def _step_row(
        self, name: str, at_s: float, figures: LearnerFigures, report: StepFigures
    ) -> None:
        """Write at most one row a second for each learner that stepped, and one for the run."""
        metrics = dict(report.metrics)
        if not figures.smooth(report.loss, metrics):
            self._notify()
            return
        if not self.figures.work.paused and not figures.gone:  # else they ended before that
            figures.enter(self.earlier_s + at_s, DIVERGED if figures.diverged else STEPPING)
        self.figures.update_loss(name)
        self.figures.work.begin(at_s)
        self.figures.speed.add(at_s, self._heard)
        if at_s - self._point_s >= STEP_ROW_INTERVAL_S:
            self._point_s = at_s
            self._run_row(at_s)
        if at_s - figures.row_s >= STEP_ROW_INTERVAL_S:
            figures.row_s = at_s
            row = {
                "learner": name,
                "steps": figures.steps,
                "tokens": figures.tokens,
                "run_tokens": self.tokens,
                "tokens_per_s": round(figures.tokens_per_s, 1),
                "loss": report.loss,
                "loss_smoothed": figures.loss,
                "step_time_s": figures.step_time_s,
                "gap_s": report.gap_s,
                "data_wait_s": report.data_wait_s,
                "stepping_s": figures.stepping_s,
                "bytes_up": figures.bytes_up,
                "bytes_down": figures.bytes_down,
                "participation": figures.participation,
                "staleness": figures.staleness,
            }
            known = {key: value for key, value in metrics.items() if key in figures.metrics}
            self._row("step", at_s, {**row, "metrics": known} if known else row)
        self._notify()

    def _run_row(self, at_s: float) -> None:
        mean = self.figures.loss
        if mean is None:
            return
        self.figures.losses.add(self.tokens, mean)
        speed = round(self.figures.speed.per_s(at_s), 1)
        self._row("run", at_s, {"tokens": self.tokens, "loss": mean, "tokens_per_s": speed})

    def evaluation(self, at_s: float, judged: Judged, found: dict[str, float]) -> None:
        """Record an evaluation of published values, which has ended now."""
        told = {"clock": judged.clock, "tokens": judged.tokens, "took_s": judged.took_s}
        row: dict[str, float] = {"at_s": round(at_s, 3), **told, **found}
        self.figures.evaluations.append(row)
        del self.figures.evaluations[:-POINTS_KEPT]
        self._row("evaluation", at_s, row)

    def settle(self, of_syncer: SyncerShare) -> None:
        """Take over what the ledger says at the run's end, unless the syncer sent nothing."""
        figures, rows = self.figures, of_syncer["ledger"]["fragments"]
        if "learners" in of_syncer:
            figures.end(of_syncer["tokens"], of_syncer["learners"])
            figures.merges, figures.settled_yield = of_syncer["merges"], of_syncer["yield"]
            figures.merged_tokens = min(TOTAL_MAX, sum(row["applied"] for row in rows))
            self._heard = figures.heard

    def last_evaluation(
        self, at_s: float, actor: str, found: dict[str, float] | IslandsError
    ) -> dict[str, float]:
        """Record the evaluation of the final values, or why there is none; return its figures."""
        if isinstance(found, IslandsError):
            self.write(at_s, actor, processes.EvaluationFailed(str(found), found.detail))
            return {}
        if found:
            self.evaluation(at_s, Judged(0.0, self.figures.tokens), found)
        return found

    def _row(self, kind: str, at_s: float, fields: Mapping[str, object]) -> None:
        row = {"kind": kind, "at_s": round(at_s, 3), **fields}
        self._metrics.add(msgspec.json.encode(row) + b"\n")  # NaN is written as null
        for sink in self._sinks:
            sink.record([row])

    @property
    def lost(self) -> int:
        """Number of entries, over all files, that could not be written."""
        return self._spool.dropped

    @property
    def trouble(self) -> str:
        return self._spool.trouble

    def close(self) -> None:
        """Flush what is buffered; give up on a disk that does not answer."""
        self._spool.close()


def event_of(actor: str, entry: Entry) -> tuple[str, str] | None:
    """Return what a row of metrics says of an entry, and whom it befell; None if nothing."""
    match entry:
        case processes.Started(epoch) if actor == "supervisor" and epoch > 1:
            return "hub_started", actor
        case members.ProcessEnded(name) if entry.error:
            return "killed", name
        case members.Evicted(name):
            return "evicted", name
        case rounds.Extended():
            return "extended", ""
        case learners.MomentsKept(""):
            return "checkpoint", actor
        case _:
            return None


def versions() -> dict[str, str]:
    """Versions of everything that can change a result."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
