"""`--dry-run`: what a hub would need, and what would be refused; nothing is started.

What a real start would check is checked in the same way: the task is built and checked against its
contract (a large one by its shapes alone), the address is bound for a moment, and the folder is
tested for access.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from islands.cli.cost import prices_in
from islands.cli.parsing import Common, one_line
from islands.cli.run import read_entries, without_learners
from islands.cli.serve import LOOPBACK, require_task
from islands.costs.bill import Bill
from islands.costs.prices import Machines
from islands.costs.spent import Pace, hour_of
from islands.engines.engine import RunMark, make_engine
from islands.engines.hub import Joining, island_of
from islands.files.disk import write_bytes_per_s
from islands.model.memory import host_memory_bytes
from islands.model.workload import OwnLoop, load_workload
from islands.numerics.outer import outer_optimizer
from islands.protocol.errors import IslandsError, UserError
from islands.protocol.identities import SUPERVISOR
from islands.run.hosting.process_runtime import network_of, run, token_of
from islands.run.planner import SLOTS, Estimate, estimate
from islands.run.run_claim import require_file, spec_in
from islands.settings.host import HubOptions, RunOptions, SupervisorOptions, SyncerOptions
from islands.settings.quantities import rate, size
from islands.settings.run_spec import RunSpec, read
from islands.settings.wire_limits import check_told, limits_of
from islands.tasks.factory import allowed_by
from messaging.errors import LinkLost, LocalFault
from messaging.websocket.security import Secret

T = TypeVar("T")
TIMED_BYTES_MIN, TIMED_BYTES_MAX = 1 << 24, 1 << 28
"""Bytes of a record from which on the journal's disk is timed, and most bytes written for it."""


@dataclass(slots=True)
class Findings:
    """The findings of a dry run.

    Args:
        estimate: what the run needs; None if its task could not be planned.
        refused: what a start would refuse, as sentences.
        details: further text by sentence, such as the traceback of the user's own code.
        tokens: of a batch of the task, as far as it was checked.
        doubts: notes, as sentences: what was not checked and why, and what may work badly.
        accelerated: whether learners here compute on devices with a memory of their own.
        elsewhere: number of the learners that engines place on other machines.
        placed: what each engine would be given, by the entry's name.
        written_bytes_per_s: how fast the folder's disk writes; None if the journal is not here, or
            its records are small.
    """

    learners: int
    step_time_s: float | None
    folder: Path
    estimate: Estimate | None = None
    overlap_steps: int = 0
    address: str | None = None
    refused: tuple[str, ...] = ()
    details: dict[str, str] = field(default_factory=dict)
    too_small: bool = False
    doubts: tuple[str, ...] = ()
    tokens: int = 0
    accelerated: bool = False
    elsewhere: int = 0
    placed: dict[str, str] = field(default_factory=dict)
    hour: Bill | None = None
    written_bytes_per_s: float | None = None

    def check(self, step: Callable[[], T]) -> T | None:
        """Take a step that a start would take; record its error if it is refused."""
        try:
            return step()
        except (IslandsError, LocalFault, LinkLost) as error:
            self.refuse(error)
            return None

    def refuse(self, error: BaseException) -> None:
        sentence = one_line(error)
        if sentence not in self.refused:
            self.refused += (sentence,)
            self.details[sentence] = error.detail if isinstance(error, IslandsError) else ""


def examine(options: object, common: Common) -> Findings:
    """Find out what a start with these options would need and refuse."""
    joins = isinstance(options, SyncerOptions) and options.supervisor
    if joins or not isinstance(options, RunOptions | SyncerOptions | SupervisorOptions):
        raise UserError("there is no dry run of this command, only of a hub")
    elsewhere = accelerated(os.environ)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # shapes need no accelerator
    learners, folder = 1, options.folder
    if isinstance(options, RunOptions):
        options = without_learners(options, common.given)
        learners, folder = options.learners, folder or Path("runs") / options.file.run.run
    assert folder is not None, "every other hub has one"
    findings = Findings(learners, common.step_time_s, folder, accelerated=elsewhere)
    if isinstance(options, RunOptions) and options.islands:
        findings.check(lambda: _examine_islands(findings, options))
    _examine_hub(findings, options, common)
    findings.check(lambda: _try_folder(findings.folder))
    return findings


def _examine_hub(
    findings: Findings, options: RunOptions | SyncerOptions | SupervisorOptions, common: Common
) -> None:
    new = RunSpec.of(options.file)
    spec = findings.check(lambda: spec_in(findings.folder, new, common.given)) or new
    findings.check(lambda: outer_optimizer(spec.settings.outer))
    findings.check(lambda: _plan_here(findings, spec, allowed_by(options.file.task)))
    findings.check(lambda: _same_run(findings, spec, extend=options.extend))
    if isinstance(options, RunOptions):
        findings.check(lambda: require_task(spec, findings.folder))
        findings.check(lambda: _price(findings, options))
    if not isinstance(options, SupervisorOptions):
        findings.check(lambda: _time_disk(findings))
    findings.check(lambda: _try_address(findings, options))
    findings.check(lambda: require_file(options.file.start_from))


def _plan_here(findings: Findings, spec: RunSpec, allowed: Collection[str]) -> None:
    workload = load_workload(spec, allowed=allowed)
    if isinstance(workload, OwnLoop):
        findings.doubts += ("the first training loop that joins tells what the model is",)
        return
    from islands.model.jax_workload import JaxWorkload

    room_bytes = None if findings.accelerated else host_memory_bytes()
    temporaries = None
    if isinstance(workload, JaxWorkload):  # a large one is traced by its shapes only
        report = workload.check(spec.settings, values=None, room_bytes=room_bytes)
        for fault in report.faults:
            findings.refuse(fault)
        doubts = [f"the task's {part}: {reason}" for part, reason in report.skipped]
        findings.doubts += (*doubts, *filter(None, [report.ends]))
        findings.tokens = report.tokens or 0
        temporaries = report.temporaries
    plan, trainer = workload.plan(spec.settings), workload.trainer_memory(spec.settings)
    if trainer is not None and temporaries is not None and not findings.accelerated:
        trainer = replace(trainer, temporaries=temporaries)
    findings.overlap_steps = spec.settings.overlap_steps_max
    findings.estimate = estimate(
        *(plan.layout, spec.settings),
        learners=findings.learners,
        step_time_s=findings.step_time_s,
        trainer=trainer,
    )
    needed = findings.estimate.host_bytes(findings.learners - findings.elsewhere)
    if room_bytes is not None and needed > room_bytes:
        findings.too_small = True
        here = f"all processes here take at least {size(needed)}"
        findings.doubts += (f"{here}, and this host has {size(room_bytes)}",)
    limits_of(plan.layout)
    check_told(spec.encode(), plan.encode())


def _price(findings: Findings, options: RunOptions) -> None:
    prices = prices_in(options.budget.prices)
    if prices is None:
        return
    hosts: dict[str, Machines | None] = {
        f"{entry}-{index}": Machines.of(needs)
        for entry, needs in read_entries(options).items()
        for index in range(needs.count)
    }
    hosts |= dict.fromkeys(f"learner-{index}" for index in range(options.learners))
    made, pace = findings.estimate, None
    if made is not None and made.step_time_s is not None:
        each = (made.up_per_step, made.down_per_step, findings.tokens)
        pace = Pace(*(one * made.steps_per_s for one in each))
    findings.hour = hour_of(hosts, prices, pace)
    findings.doubts += findings.hour.missing


def _same_run(findings: Findings, spec: RunSpec, *, extend: bool) -> None:
    earlier = read(findings.folder)
    if earlier is None and extend:
        raise UserError(f"extend is set, and {findings.folder} holds no run that could go on")
    if earlier is not None:
        findings.doubts += tuple(
            f"goes on with {change}" for change in spec.differences(earlier[0])
        )
        if changed := spec.changed_from(earlier[0]):
            raise UserError(f"{findings.folder} holds another run, with {changed}")


def _try_address(findings: Findings, options: HubOptions) -> None:
    """Bind for a moment the address that a start would bind."""
    listening = options.listening

    async def bind() -> int:
        token = token_of(options.connecting)
        if token is None and isinstance(options, RunOptions):  # it would make one
            token = Secret.generate()
        network = network_of(options.connecting, listening, token=token)
        try:
            await network.open(listening.host, listening.port, advertise=listening.advertise)
            findings.address = network.url("supervisor") if listening.port else listening.listen
        finally:
            await network.close()
        return 0

    run(bind)


def _try_folder(folder: Path) -> None:
    """Check that the folder, or its nearest parent that exists, can be written to."""
    there = _nearest(folder)
    if not there.is_dir():
        raise UserError(f"the folder {folder} cannot be made: {there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"the folder {folder} cannot be written: no permission in {there}")


def _nearest(folder: Path) -> Path:
    path = folder.absolute()
    return next(each for each in (path, *path.parents) if each.exists())


def _time_disk(findings: Findings) -> None:
    """Measure the disk of the journal, if its records are large enough for it to set the pace."""
    made = findings.estimate
    if made is not None and not made.neighbours and made.disk_per_round >= TIMED_BYTES_MIN:
        size_bytes = min(made.disk_per_round, TIMED_BYTES_MAX)
        findings.written_bytes_per_s = write_bytes_per_s(_nearest(findings.folder), size_bytes)


def _examine_islands(findings: Findings, options: RunOptions) -> None:
    """Find out what each engine would be given; none of them is asked anything."""
    entries = read_entries(options)
    findings.elsewhere = sum(needs.count for needs in entries.values())
    findings.learners += findings.elsewhere
    of, listening = RunMark(options.file.run.run, "0" * 8), options.listening
    url = f"ws://{listening.advertise or listening.listen}/{SUPERVISOR}"
    hub = Joining(of, url, "TOKEN", task=options.file.task)
    if listening.host in LOOPBACK and listening.advertise is None:
        heard = (
            f"islands of other hosts do not reach this one, for it listens at {listening.listen}"
        )
        findings.doubts += (f"{heard}: --listen 0.0.0.0:7070 --advertise HOST lets them in",)

    def describe(name: str) -> None:
        needs = entries[name]
        engine = make_engine(needs.engine, of, needs.settings)
        findings.placed[f"{needs.count} of {name}, by {needs.engine}"] = engine.describe(
            island_of(f"{name}-0", needs, hub)
        )

    for name in entries:
        findings.check(partial(describe, name))


def accelerated(environment: Mapping[str, str], devices: Path = Path("/dev")) -> bool:
    """Return whether learners of this host compute on devices with a memory of their own."""
    if environment.get("JAX_PLATFORMS", "").startswith("cpu"):
        return False
    return any(any(devices.glob(pattern)) for pattern in ("nvidia[0-9]*", "accel*", "kfd"))


# --- a table for a terminal of 80 columns --------------------------------------------------------

Rows = Iterator[tuple[str, str, str]]


def show(findings: Findings, console: Console | None = None) -> None:
    """Print what would be refused, what a start would need, and notes on both."""
    console = console or Console(soft_wrap=False)
    say = partial(console.print, highlight=False, markup=False)
    for sentence in findings.refused:
        say(f"refused: {sentence}")
        say(findings.details.get(sentence, ""))
    made = findings.estimate
    if made is not None:
        console.print(_table(findings, made))
    for sentence in () if made is None else made.warnings:
        say(f"note: {sentence}")
    for title, text in findings.placed.items():
        say(f"\n{title}; the first would be given:\n")
        say(text, soft_wrap=True)
    for sentence in findings.doubts:
        say(f"note: {sentence}")
    refused = f"refused, as the first lines say: {len(findings.refused)}"
    say(refused if findings.refused else "nothing would be refused")


def _table(findings: Findings, made: Estimate) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for rows in (_plan, _memory, _traffic, _money):
        for name, amount, remark in rows(findings, made):
            table.add_row(name, amount, remark, style="bold" if not amount + remark else None)
    return table


def _plan(findings: Findings, made: Estimate) -> Rows:
    sizes = f"{size(made.smallest)} to {size(made.largest)} each"
    wanted = f" ({made.fragments_wanted} asked for)" * (made.fragments < made.fragments_wanted)
    yield "The run", "", ""
    yield "  parameters", f"{made.elements:,}", "trained, or of a state that is averaged"
    yield "  fragments", f"{made.fragments}", f"{made.pattern}, {sizes}{wanted}"
    yield "  rounds open", f"{made.rounds_open}", "at once, at most"
    yield "  learners", f"{made.learners}", "more may join"
    yield "  folder", "", str(findings.folder)
    yield "  port", "", findings.address or "none"


def _memory(findings: Findings, made: Estimate) -> Rows:
    learner, syncer, whole = made.learner, made.syncer, made.activations_known
    known = "of the inner optimizer" if made.moments_known else "taken as twice the parameters"
    yield "Memory of a learner", "", ""
    yield "  parameters", size(learner.parameters), ""
    yield "  base", size(learner.base), "published value held last, float32"
    yield "  moments", size(learner.moments), known
    yield "  gradients", size(learner.gradients), "and activations" if whole else ""
    yield "  snapshots", size(learner.snapshots), "device and host, at most"
    if learner.published:
        yield "  published", size(learner.published), "on the host, to add increments to"
    yield "  total", size(learner.total), "" if whole else "and the activations of a step"
    yield "Memory of the syncer", "", ""
    yield "  values", size(syncer.values), "and old ones until all have new ones, float32"
    yield "  outer state", size(syncer.outer), "of the outer optimizer"
    yield "  open rounds", size(syncer.rounds), "contributions that wait, at most"
    if syncer.increments:
        yield "  increments", size(syncer.increments), "the newest, and what they left"
    yield "  total", size(syncer.total), ""
    here = 0 if findings.accelerated else findings.learners - findings.elsewhere
    learners = "1 learner" if here == 1 else f"{here} learners"
    yield (
        "This host, at least",
        size(made.host_bytes(here)),
        f"syncer, {learners}, with the programs",
    )


def _traffic(findings: Findings, made: Estimate) -> Rows:
    steps = made.steps_per_s
    pace = "at 1 step/s" if made.step_time_s is None else f"at {steps:.3g} steps/s"
    least = rate(made.up_per_step_least * steps)
    chosen = f"at most; {least} at the coarsest" * (made.up_per_step_least < made.up_per_step)
    yield f"Network and disk, {pace}", "", ""
    yield "  joining", size(made.start_bytes), "to each learner"
    yield "  learner, up", rate(made.up_per_step * steps), chosen or "on average"
    yield "  learner, down", rate(made.down_per_step * steps), "on average"
    if made.neighbours:
        yield "  neighbours", f"{made.neighbours:.3g}", "of a learner in a round, met directly"
    else:
        both = (made.up_per_step + made.down_per_step) * steps * made.learners
        needed = made.hub_bytes_per_s(findings.overlap_steps)
        hidden = "nothing is hidden" if needed is None else rate(needed)
        yield "  hub", rate(both), f"both ways, {made.learners} learners"
        yield "  hub, least", hidden, f"for an exchange within {findings.overlap_steps} steps"
    yield "  journal", size(made.disk_bytes), "on the syncer's disk"
    yield "  checkpoint", size(made.disk_bytes // SLOTS), "each, of which three are kept by default"
    yield "  written", rate(made.disk_per_step * steps), f"{size(made.disk_per_round)} per round"
    speed = findings.written_bytes_per_s
    if speed is not None:
        round_s, bound = made.round_s(speed), f"the pace; the disk writes {rate(speed)}"
        if round_s > made.pace_s:
            bound = f"the disk, {rate(speed)}; the pace allows {made.pace_s:.3g} s"
        yield "  a round takes", f"{round_s:.3g} s", bound


def _money(findings: Findings, _: Estimate) -> Rows:
    hour = findings.hour
    if hour is None or not hour.lines:
        return
    whole, known = hour.whole, findings.step_time_s is not None
    traffic = "with traffic" if known else "without traffic: step_time_s is not given"
    islands = "1 island" if whole.islands == 1 else f"{whole.islands} islands"
    yield "Money", "", ""
    yield "  an hour", f"{whole.cost:,.2f} {hour.currency}", f"{islands}, {traffic}"
    if whole.cost_per_million is not None:
        yield "  1 M tokens", f"{whole.cost_per_million:,.4g} {hour.currency}", "if all are merged"
