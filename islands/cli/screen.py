"""What a person sees of a run: live on a terminal, plain lines elsewhere, and the end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, cast

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from islands.summary import Summary
    from islands.telemetry import LearnerFigures, RunFigures

BARS = "▁▂▃▄▅▆▇█"
PLAIN_INTERVAL_S = 5.0
WIDEST = 110
"""Columns beyond which a table is no easier to read."""
ECHO = 2
"""Columns left free for the terminal's ^C, which would otherwise push the picture up a line."""
CURVE = 10
"""Columns of a curve beside other figures."""
LEARNERS_SHOWN = 32
"""Learners of which a person is told one by one; those that are not well come first."""
ABOUT = ("at_s", "clock", "tokens")
"""What an evaluation says of itself, beside the task's figures."""


class Screen:
    """Shows figures of a run; call `show` as often as you like."""

    def __init__(self, budget_tokens: int | None) -> None:
        """Look at where the output goes."""
        self.console = Console()
        self._budget_tokens = budget_tokens
        self._live: Live | None = None
        self._plain_s = float("-inf")
        self._warned = ""

    def __enter__(self) -> Self:
        """Take the terminal, if there is one."""
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def show(self, figures: "RunFigures", tokens: int, elapsed_s: float) -> None:
        """Show where the run stands."""
        if self._live is not None:
            self._live.update(self.picture(figures, tokens, elapsed_s))
        elif elapsed_s - self._plain_s >= PLAIN_INTERVAL_S:
            self._plain_s = elapsed_s
            line = self._line(figures, tokens, elapsed_s)
            self.console.print(line, highlight=False, soft_wrap=True)
            self._warn(figures.warning)

    def _warn(self, warning: str) -> None:
        """Print a warning once; another one, or the same after it was over, is printed again."""
        if warning != self._warned and warning:
            self.console.print(f"warning: {warning}", highlight=False, markup=False, soft_wrap=True)
        self._warned = warning

    def say(self, text: str) -> None:
        """Print a sentence that stays, as it is: a path in it can be copied, and is no markup."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _line(self, figures: "RunFigures", tokens: int, elapsed_s: float) -> str:
        shown, more = _shown(figures)
        learners = " ".join(f"{name}:{one.shown}/{one.steps}" for name, one in shown)
        learners += f" and {more:,} more" if more else ""
        name, values = metric(figures)
        value = f" {name}={values[-1]:.3f}" if values else ""
        budget = self._budget_tokens
        share = f"{tokens:,} tokens" if budget is None else f"{tokens / budget:4.0%}"
        return f"{elapsed_s:6.1f} s {share} merges={figures.merges}{value} {learners}"

    def picture(self, figures: "RunFigures", tokens: int, elapsed_s: float) -> Group:
        """What a terminal shows of a run; its height does not depend on how wide it is."""
        table = Table(box=None, pad_edge=False, expand=True)
        for title in ("learner", "status", "steps", "tokens", "loss", "step", "incarnation"):
            table.add_column(title, justify="left" if title in ("learner", "status") else "right")
        shown, more = _shown(figures)
        for name, learner in shown:
            table.add_row(
                name,
                Text(learner.shown, style="green" if learner.shown == "live" else "red"),
                f"{learner.steps:,}",
                f"{learner.tokens:,}",
                "" if learner.loss is None else f"{learner.loss:.3f}",
                f"{1000 * learner.step_time_s:.0f} ms",
                str(learner.incarnations),
            )
        if more:
            table.add_row(f"and {more:,} more", *[""] * 6)
        bar = Table.grid(expand=True)
        budget = self._budget_tokens
        bar.add_row(ProgressBar(budget, tokens if budget is None else min(tokens, budget)))
        wanted = "" if budget is None else f" of {budget:,}"
        name, values = metric(figures)
        evaluated = f"{name} {values[-1]:.3f} {sparkline(values, CURVE)}" if values else ""
        head = _line_of(
            f"{elapsed_s:.0f} s   {tokens:,}{wanted} tokens   "
            f"{figures.merges:,} merges   {evaluated}"
        )
        below = [_line_of(event, "dim") for event in figures.events]
        if figures.warning:
            below.insert(0, Text(figures.warning, "yellow"))
        width = min(WIDEST, self.console.width - ECHO)
        return Group(Panel(Group(head, bar, table, *below), title="islands", width=width))

    # --- the end ------------------------------------------------------------------------------

    def conclude(self, figures: "RunFigures", summary: "Summary") -> None:
        """Show what came of the run."""
        losses = [loss for _, loss in figures.losses]
        if losses:
            told = f"training loss {losses[0]:.3f} → {losses[-1]:.3f} nats per token"
            self.say(f"\n{told}  {sparkline(losses)}")
        name, values = metric(figures)
        if values:
            self.say(f"{name} {values[0]:.3f} → {values[-1]:.3f}  {sparkline(values)}\n")
        table = Table(title="The run", show_header=False, title_justify="left")
        for key, value in summary.items():
            if isinstance(value, float):
                table.add_row(key, f"{value:,.4g}")
            elif isinstance(value, int):
                table.add_row(key, f"{value:,}")
        self.console.print(table)
        self.say("What became of every token, mean over fragments")
        self.console.print(_ledger(cast("dict[str, object]", summary["ledger"])))
        self.console.print(_learners(cast("dict[str, dict[str, int]]", summary["learners"])))


def _shown(figures: "RunFigures") -> tuple[list[tuple[str, "LearnerFigures"]], int]:
    """The learners to be told of, by name, and how many more there are."""
    every = figures.learners.items()
    first = sorted(every, key=lambda one: (one[1].shown == "live", one[0]))[:LEARNERS_SHOWN]
    return sorted(first, key=lambda one: one[0]), len(every) - len(first)


def _line_of(text: str, style: str = "") -> Text:
    """One line, cut where the terminal ends: a picture that keeps its height does not jump."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _ledger(ledger: dict[str, object]) -> Table:
    """Fates as rows: nine of them side by side do not fit a terminal of 80 columns."""
    rows = cast("list[dict[str, int]]", ledger["fragments"])
    table = Table()
    for title in ("fate", "tokens", "share"):
        table.add_column(title, justify="left" if title == "fate" else "right")
    processed = max(1, sum(row["processed"] for row in rows))
    for name in rows[0]:
        total = sum(row[name] for row in rows)
        table.add_row(name, f"{total / len(rows):,.0f}", f"{total / processed:.1%}")
    table.add_row("imbalance", str(ledger["imbalance"]), "")
    return table


def _learners(learners: dict[str, dict[str, int]]) -> Table:
    table = Table(title="Learners", title_justify="left")
    table.add_column("name")
    for title in ("steps", "tokens", "incarnations"):
        table.add_column(title, justify="right")
    for name, row in learners.items():
        table.add_row(name, *(f"{row[key]:,}" for key in ("steps", "tokens", "incarnations")))
    return table


def metric(figures: "RunFigures") -> tuple[str, list[float]]:
    """Name and values of the first figure that the task's evaluations have; "" for none."""
    rows = [{k: v for k, v in row.items() if k not in ABOUT} for row in figures.evaluations]
    name = next((key for row in rows for key in row), "")
    return name, [row[name] for row in rows if name in row]


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A curve in one line of text: the mean of each of `width` equal parts."""
    if not values:
        return ""
    width = min(width, len(values))
    parts = [
        values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width)
    ]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1))] for mean in means)
