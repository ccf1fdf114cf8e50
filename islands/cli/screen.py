"""The display of a run: a live panel on a terminal, plain lines elsewhere, and the results."""

import sys
from itertools import islice
from typing import IO, TYPE_CHECKING, Self, cast

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from islands.cli.results import show_next, show_results, sparkline
from islands.protocol.identities import BLOCKED, Phase
from islands.run.hosting.standard_streams import LossyOutput, wrapped
from islands.run.records.figures import RunFigures
from islands.run.run_status import NOT_ASKED, Health, LearnerLine, RunStatus
from islands.settings.quantities import count, duration

if TYPE_CHECKING:
    from islands.run.coordinator import Coordinator
    from islands.run.records.summary import Summary

PLAIN_INTERVAL_S = 5.0
WIDEST = 160
"""Largest width in columns, beyond which a table is no easier to read."""
ECHO = 2
"""Columns left free for the terminal's ^C, which would otherwise push the panel up a line."""
FRAME = 4
"""Columns that the panel's frame takes."""
CURVE = 48
"""Largest width of a curve in columns."""
LEARNERS_SHOWN = 32
"""Largest number of learners that have a row each; those in poor health are preferred."""
LINES_AROUND = 15
"""Lines of the panel that are not rows of learners."""
LEARNERS_LEAST = 3
COLUMNS = ("learner", "state", "steps", "tokens", "loss", "tokens/s", "step", "heard")
EVENTS_SHOWN = 5
METRICS_SHOWN = 4
SLOWLY_S = 2.0
"""Silence of a learner from which it is shown; heartbeats come every second."""
STYLES = {Health.WELL: "green", Health.WAITING: "yellow", Health.ILL: "red"}


class Screen:
    """Shows figures of a run; `show` may be called at any rate."""

    def __init__(self) -> None:
        self.console = Console(file=cast("IO[str]", LossyOutput(sys.stdout)))
        self._live: Live | None = None
        self._plain_s = float("-inf")
        self._warned = ""

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def show(self, status: RunStatus) -> None:
        if self._live is not None:
            self._live.update(self.picture(status))
        elif status.elapsed_s - self._plain_s >= PLAIN_INTERVAL_S:
            self._plain_s = status.elapsed_s
            self.say(_line(status))
            warning = status.figures.warning
            if warning and warning != self._warned:  # it is new, or is back
                self.say(f"warning: {warning}")
            self._warned = warning

    def say(self, text: str) -> None:
        """Print a sentence that stays; on a terminal its lines end between words."""
        if self.console.is_terminal:
            text = wrapped(text, self.console.width)
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def picture(self, status: RunStatus) -> Panel:
        """Return the panel that a terminal shows; its height does not depend on its width."""
        figures = status.figures
        width = min(WIDEST, self.console.width - ECHO)
        bar, done = Table.grid(expand=True), status.share
        bar.add_row(ProgressBar(None if done is None else 1.0, done or 0.0))
        below = [_line_of(event, "dim") for event in list(figures.events)[-EVENTS_SHOWN:]]
        if figures.warning:
            below.insert(0, Text(figures.warning, "yellow"))
        shown = Group(
            _line_of(_head(status, width - FRAME)),
            bar,
            _line_of(_curves(figures, width - FRAME) or _before_a_loss(status)),
            _line_of(_results(status)),
            self._learners(status),
            *below,
        )
        return Panel(shown, title=Text(f"islands: {status.settings.run}"), width=width)

    def _learners(self, status: RunStatus) -> Table:
        most = LEARNERS_SHOWN
        if self.console.is_terminal:  # lines that exceed its height would be cut off at the end
            most = max(LEARNERS_LEAST, min(most, self.console.height - LINES_AROUND))
        lines, more = status.learners(most)
        table = Table(box=None, pad_edge=False, expand=True)
        for title in COLUMNS:
            left = title in ("learner", "state")
            table.add_column(title, justify="left" if left else "right", no_wrap=True)
        for line in lines:
            table.add_row(*_cells(line))
        if more:
            table.add_row(f"and {more:,} more", *[""] * (len(table.columns) - 1))
        return table

    def conclude(self, figures: RunFigures, summary: "Summary") -> None:
        """Show the results of the run, and the advice that they give."""
        show_results(self.console, figures, summary)
        if summary["advice"]:
            self.say(f"\n{summary['advice']}")

    def offer(self, hub: "Coordinator") -> None:
        """Say where everything is, and name the commands that one may use next."""
        from islands.tasks.task import Sampler

        task = getattr(hub.workload, "task", None)
        self.say(f"\nEverything is in {hub.settings.folder}")
        if hub.has_final_values:
            show_next(self.console, hub.settings.folder, generates=isinstance(task, Sampler))


def _line(status: RunStatus) -> str:
    """Return all figures in one line, for a pipe."""
    figures, share = status.figures, status.share
    lines, more = status.learners(LEARNERS_SHOWN)
    learners = [f"{line.name} {_shown(line)}, {line.figures.steps:,} steps" for line in lines]
    learners += [f"and {more:,} more"] if more else []
    name, values = figures.metric
    compiling_s = _compiling_s(status)
    parts = [
        f"{status.elapsed_s:6.1f} s",
        f"{status.tokens:,} tokens" if share is None else f"{share:4.0%}",
        f"{status.tokens_per_s:,.0f} tokens/s",
        f"{figures.merges:,} merges",
        f"merged {status.yield_so_far:.0%}",
        _participation(status.figures, status.elapsed_s),
        "" if figures.loss is None else f"loss {figures.loss:.3f}",
        f"{name} {values[-1]:.3f}" if values else "",
        *_metrics(figures),
        "" if compiling_s is None else f"compiling for {duration(compiling_s)}",
        BLOCKED if status.phase == "blocked" else "",
        *learners,
    ]
    return "   ".join(filter(None, parts))


def _shown(line: LearnerLine) -> str:
    """Return the state of a learner, with the reason if it is not asked."""
    if line.state == NOT_ASKED:
        return f"{NOT_ASKED}: {line.figures.left_out}"
    return line.away or line.state


def _participation(figures: RunFigures, elapsed_s: float) -> str:
    """Return how many learners merges have, lately and in the whole run; "" before one."""
    lately, whole = figures.participation_lately(elapsed_s), figures.participation
    if lately is None or whole is None:
        return ""
    return f"took part {lately:.0%} in the last minute, {whole:.0%} in all"


def _compiling_s(status: RunStatus) -> float | None:
    """Return for how long learners compile while none trains yet; None if that is not so."""
    since_s = [m.phase_since_s for m in status.members.values() if m.phase is Phase.COMPILING]
    starting = bool(since_s) and status.phase == "starting"
    return status.now_s - min(since_s) if starting else None


def _head(status: RunStatus, width: int) -> str:
    """Return phase, elapsed time, tokens, speed and remaining time, in words as far as they fit."""
    budget, left_s = status.settings.budget_tokens, status.left_s
    line = ""
    for number, rate in (("{:,.0f}".format, " tokens/s"), (count, " tokens/s"), (count, "/s")):
        parts = [
            status.phase,
            duration(status.elapsed_s),
            f"{number(status.tokens)}{'' if budget is None else f' of {number(budget)}'} tokens",
            f"{count(status.tokens_per_s)}{rate}",
            *([] if left_s is None else [f"{duration(left_s)} left"]),
        ]
        line = "   ".join(parts)
        if len(line) <= width:
            break
    return line


def _curves(figures: RunFigures, width: int) -> str:
    """Return the training loss and the task's evaluations in one line, each with its curve."""
    losses = [loss for _, loss in figures.losses.all()]
    name, values = figures.metric
    curves = [
        (f"{title} {curve[0]:.3f} → {curve[-1]:.3f}", curve)
        for title, curve in (("loss", losses), (name, values))
        if curve
    ]
    room = width - sum(len(text) + FRAME for text, _ in curves)
    each = max(0, min(CURVE, room // max(1, len(curves))))
    return "   ".join(f"{text} {sparkline(curve, each)}" for text, curve in curves)


def _before_a_loss(status: RunStatus) -> str:
    compiling_s = _compiling_s(status)
    if compiling_s is not None:
        return f"learners compile, for {duration(max(1.0, compiling_s))} so far; then they train"
    if status.phase == "starting" and not status.figures.learners:
        return "no learner is here yet; one needs 5 to 15 s to start, and then compiles"
    return "no loss yet"


def _metrics(figures: RunFigures) -> list[str]:
    """Return metrics of steps, as means over learners."""
    return [f"{name} {value:.4g}" for name, value in islice(figures.metrics.items(), METRICS_SHOWN)]


def _results(status: RunStatus) -> str:
    figures = status.figures
    parts = [
        f"{figures.merges:,} merges   {status.yield_so_far:.0%} of tokens merged",
        _participation(figures, status.elapsed_s),
        f"learning rate {status.rate:.3g}   evictions {figures.evictions}",
        *_metrics(figures),
    ]
    return "   ".join(filter(None, parts))


def _cells(line: LearnerLine) -> list[str | Text]:
    done = line.figures
    heard = ""
    if line.silent_s is not None:
        heard = duration(line.silent_s) if line.silent_s >= SLOWLY_S else "now"
    here = line.silent_s is not None  # else its last figures are outdated
    steps = here and done.step_time_s > 0
    return [
        Text(line.name),
        Text(_shown(line), STYLES[line.health]),
        f"{done.steps:,}",
        count(done.tokens),
        f"{done.loss:.3f}" if here and done.loss is not None else "",
        count(line.tokens_per_s) if steps else "",
        duration(done.step_time_s) if steps else "",
        heard,
    ]


def _line_of(text: str, style: str = "") -> Text:
    """Return one line, cut at the terminal's width: a panel of constant height does not jump."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")
