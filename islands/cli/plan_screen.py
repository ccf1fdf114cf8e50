"""A dry run's findings as a table for a terminal of 80 columns."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from islands.protocol.settings.quantities import rate, size

if TYPE_CHECKING:
    from islands.cli.dry_run import Findings
    from islands.run.planner import Estimate


def show(found: "Findings", console: Console | None = None) -> None:
    """Print what would be refused, what a start would need, and notes on both."""
    console = console or Console(soft_wrap=False)
    for sentence in found.refused:
        console.print(f"refused: {sentence}", highlight=False, markup=False)
        console.print(found.details.get(sentence, ""), highlight=False, markup=False)
    made = found.estimate
    if made is not None:
        console.print(_table(found, made))
        for sentence in made.warnings:
            console.print(f"note: {sentence}", highlight=False, markup=False)
    for sentence in found.doubts:
        console.print(f"note: {sentence}", highlight=False, markup=False)
    refused = f"refused, as the first lines say: {len(found.refused)}"
    console.print(refused if found.refused else "nothing would be refused", highlight=False)


def _table(found: "Findings", made: "Estimate") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for name, amount, remark in (
        *_plan(found, made),
        *_learner(made),
        *_syncer(made),
        *_processes(made),
        *_traffic(found, made),
    ):
        table.add_row(name, amount, remark, style="bold" if not amount and not remark else None)
    return table


Rows = tuple[tuple[str, str, str], ...]


def _plan(found: "Findings", made: "Estimate") -> Rows:
    sizes = f"{size(made.smallest)} to {size(made.largest)} each"
    wanted = f" ({made.fragments_wanted} asked for)" * (made.fragments < made.fragments_wanted)
    return (
        ("The run", "", ""),
        ("  parameters", f"{made.elements:,}", "trained, or of a state that is averaged"),
        ("  fragments", f"{made.fragments}", f"{made.pattern}, {sizes}{wanted}"),
        ("  rounds open", f"{made.rounds_open}", "at once, at most"),
        ("  learners", f"{made.learners}", "more may join"),
        ("  folder", "", str(found.folder)),
        ("  port", "", found.address or "none; it dials out"),
    )


def _learner(made: "Estimate") -> Rows:
    memory = made.learner
    whole = made.activations_known
    known = "of the inner optimizer" if made.moments_known else "taken as twice the parameters"
    return (
        ("Memory of a learner", "", ""),
        ("  parameters", size(memory.parameters), ""),
        ("  base", size(memory.base), "published value held last, float32"),
        ("  moments", size(memory.moments), known),
        ("  gradients", size(memory.gradients), "and activations" if whole else ""),
        ("  snapshots", size(memory.snapshots), "device and host, at most"),
        *_only("  published", memory.published, "on the host, to add increments to"),
        ("  total", size(memory.total), "" if whole else "and the activations of a step"),
    )


def _syncer(made: "Estimate") -> Rows:
    memory = made.syncer
    return (
        ("Memory of the syncer", "", ""),
        ("  values", size(memory.values), "and old ones until all have new ones, float32"),
        ("  outer state", size(memory.outer), "of the outer optimizer"),
        ("  open rounds", size(memory.rounds), "contributions that wait, at most"),
        *_only("  increments", memory.increments, "the newest, and what they left"),
        ("  total", size(memory.total), ""),
        *_only("  laggards", memory.laggards, "more at most, while a learner is behind or lost"),
    )


def _only(name: str, taken: int, told: str) -> Rows:
    """Return a row for what only some runs take."""
    return ((name, size(taken), told),) if taken else ()


def _processes(made: "Estimate") -> Rows:
    host, whole = made.processes, made.activations_known
    count = "1 learner" if host.learners == 1 else f"{host.learners} learners"
    return (
        ("Peak on the hosts", "", ""),
        ("  hub", size(host.hub), "supervisor and evaluation"),
        ("  syncer", size(host.syncer), "merges and program as well"),
        ("  learner", size(host.learner), "each" + ", beside activations" * (not whole)),
        ("  all here", size(host.total), f"hub, syncer, {count}"),
    )


def _round(found: "Findings", made: "Estimate") -> Rows:
    """Return a row for the time of a round, where the journal's disk was timed."""
    if found.written_bytes_per_s is None:
        return ()
    round_s, speed = made.round_s(found.written_bytes_per_s), rate(found.written_bytes_per_s)
    bound = f"the pace; the disk writes {speed}"
    if round_s > made.pace_s:
        bound = f"the disk, {speed}; the pace allows {made.pace_s:.3g} s"
    return (("  a round takes", f"{round_s:.3g} s", bound),)


def _traffic(found: "Findings", made: "Estimate") -> Rows:
    steps = made.steps_per_s
    pace = "at 1 step/s" if made.step_time_s is None else f"at {steps:.3g} steps/s"
    needed = made.hub_bytes_per_s(found.overlap_steps)
    hidden = "nothing is hidden" if needed is None else rate(needed)
    steps_1000 = made.recorded_per_step * 1000
    recorded = f"{size(round(steps_1000))} in 1,000 steps"
    least = rate(made.up_per_step_least * steps)
    chosen = f"at most; {least} at the coarsest" * (made.up_per_step_least < made.up_per_step)
    both = (made.up_per_step + made.down_per_step) * steps * made.learners
    hub = (
        ("  hub", rate(both), f"both ways, {made.learners} learners"),
        ("  hub, least", hidden, f"for an exchange within {found.overlap_steps} steps"),
    )
    met = (("  neighbours", f"{made.neighbours:.3g}", "of a learner in a round, met directly"),)
    return (
        (f"Network and disk, {pace}", "", ""),
        ("  joining", size(made.start_bytes), "to each learner"),
        ("  learner, up", rate(made.up_per_step * steps), chosen or "on average"),
        ("  learner, down", rate(made.down_per_step * steps), "on average"),
        *(met if made.neighbours else hub),
        ("  journal", size(made.disk_bytes), "on the syncer's disk"),
        ("  written", rate(made.disk_per_step * steps), f"{size(made.disk_per_round)} per round"),
        *_round(found, made),
        *((("  recorded", rate(made.recorded_per_step * steps), recorded),) if steps_1000 else ()),
    )
