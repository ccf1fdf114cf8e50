"""`islands scale RUN`: how many islands a target asks for, and whether they are added and drained.

The gain of one more island is that of the fleet simulation, with the run's own settings, step and
model; the laboratory is imported for it alone.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from islands.cli.cost import prices_in
from islands.cli.islands_table import read_entries
from islands.cli.parsing import Common, parse
from islands.protocol.errors import SettingsError
from islands.protocol.settings.run import RunSettings
from islands.settings.commands import ControlOptions, ScaleOptions
from islands.settings.host import RunOptions
from messaging.clock import Clock, MonotonicClock

if TYPE_CHECKING:
    from islands.scaling.fleet import Fleet, Run
    from islands.scaling.looking import Scaler, Tell
    from islands.scaling.targets import Target

WARMUP_INTERVALS, MEASURED_INTERVALS = 1, 3
PARAMETERS = 1e9


def run(options: ScaleOptions, _: Common) -> int:
    """Tell what is wanted, once or until the run has ended; return the exit code.

    Raises:
        UserError: there is no such run or file, or the target needs what nobody tells.
    """
    from islands.run.hosting.process_runtime import run as run_process

    source = _source(options)

    async def follow() -> int:
        await scaler_of(options, source, _tell(options, source) if options.apply else None).follow()
        return 0

    return run_process(follow)


@dataclass(frozen=True, slots=True)
class Source:
    """What is looked at: a run's folder, or its file.

    Args:
        settings: of the run.
        look: returns the fleet now; None once the run has ended.
        run: the run of the folder; None of a file.
        parameters: values of the model; None: not known.
    """

    settings: RunSettings
    look: "Callable[[], Fleet | None]"
    run: "Run | None" = None
    parameters: float | None = None


def _source(options: ScaleOptions) -> Source:
    from islands.scaling.fleet import Run, fleet_in_file

    place, prices, most = options.place, prices_in(options.prices), options.most
    assert place is not None, "checked with the options"
    if place.is_file():
        if options.apply:
            raise SettingsError(f"apply is set and {place} is a file; name the folder of a run")
        told, _ = parse(RunOptions, [str(place)], program="islands run", description="")
        fleet = _known(fleet_in_file(read_entries(told), prices, most), options)
        return Source(told.file.run, lambda: fleet)
    run = Run.of(place)
    parameters = float(sum(fragment.size for fragment in run.plan.layout.fragments))

    def look() -> "Fleet | None":
        return None if run.ended else _known(run.fleet(prices, most), options)

    return Source(run.spec.settings, look, run, parameters)


def _known(fleet: "Fleet", options: ScaleOptions) -> "Fleet":
    """Return a fleet with the speed that the options tell, where the run tells none."""
    if options.step_s is None or options.tokens_per_step is None:
        return fleet
    speed = options.tokens_per_step / options.step_s
    entries = (replace(one, tokens_per_s=one.tokens_per_s or speed) for one in fleet.entries)
    return replace(fleet, entries=tuple(entries))


def scaler_of(options: ScaleOptions, source: Source, tell: "Tell | None") -> "Scaler":
    """Return what follows the target."""
    from islands.scaling.looking import Scaler

    return Scaler(
        look=source.look,
        target=target_of(options, source),
        tell=tell,
        say=lambda text: print(text, flush=True),
        least=options.least,
        interval_s=options.interval_s,
        textfile=options.textfile,
    )


def _tell(options: ScaleOptions, source: Source) -> "Tell":
    """Return what sends an operator's command to the hub of the run's folder."""
    from islands.cli.control import target_of as supervisor_of
    from islands.cli.control import tell
    from islands.protocol.messages.control import CommandAnswer, Verb

    assert source.run is not None, "a file is refused before"
    folder = source.run.folder

    async def ask(verb: Verb, name: str, count: int) -> CommandAnswer:
        told = ControlOptions(Verb.STATUS, folder=folder, connecting=options.connecting)
        return await tell(supervisor_of(told), verb, name, count)

    return ask


# --- targets ----------------------------------------------------------------------------------


def target_of(
    options: ScaleOptions, source: Source, clock: Clock | None = None
) -> "Callable[[Fleet], Target]":
    """Return what says, at each look, what is asked for.

    Raises:
        SettingsError: the target needs what nobody tells.
    """
    from islands.scaling.targets import PerHour

    if options.per_hour is not None:
        money = PerHour(options.per_hour)
        return lambda _: money
    if options.yield_at_least is not None:
        return _simulated(options, source)
    return _until(options, source, clock or MonotonicClock())


def _until(options: ScaleOptions, source: Source, clock: Clock) -> "Callable[[Fleet], Target]":
    """Return what is left to do until the deadline: of the budget, and of each region's data."""
    from islands.scaling.targets import Deadline

    budget, data = source.settings.budget_tokens, options.tokens
    if budget is None and not data:
        raise SettingsError(
            "deadline is set, and the run has no budget_tokens; a deadline needs that or data"
        )
    assert options.deadline_s is not None, "checked with the options"
    end_s = clock.now_s() + options.deadline_s
    first: list[Fleet] = []

    def target(fleet: "Fleet") -> "Target":
        first.extend([] if first else [fleet])
        done = {
            region: fleet.by_region.get(region, 0) - first[0].by_region.get(region, 0)
            for region in data
        }
        own = {region: max(0.0, tokens - done[region]) for region, tokens in data.items()}
        shared = 0.0 if budget is None else max(0.0, budget - fleet.tokens - sum(own.values()))
        return Deadline(end_s - clock.now_s(), shared, own)

    return target


def _simulated(options: ScaleOptions, source: Source) -> "Callable[[Fleet], Target]":
    """Return what tells, by playing fleets of so many islands, what these merge in a second.

    A fleet of the same number and step is played once, however often it is looked at.
    """
    from islands.lab.experiments.fleet import Cell, Link, play, steady
    from islands.scaling.targets import Gain

    least, parameters = options.yield_at_least, options.parameters or source.parameters
    assert least is not None, "this is the target"
    settings = replace(source.settings, budget_tokens=None, budget_s=None)

    def cell_of(islands: int, step_s: float) -> Cell:
        quorum, interval_s = settings.quorum, settings.interval_steps * step_s
        fewer = min(quorum, islands) if isinstance(quorum, int) else quorum
        return replace(
            steady(islands),
            step_s=step_s,
            parameters=parameters or PARAMETERS,
            link=Link(options.latency_s, options.gbit_s),
            settings=replace(settings, quorum=fewer),
            warmup_s=WARMUP_INTERVALS * interval_s,
            measured_s=MEASURED_INTERVALS * interval_s,
        )

    @cache
    def merged(islands: int, step_s: float) -> float:
        with ThreadPoolExecutor(1) as thread:  # which has no event loop yet
            played = thread.submit(play, cell_of(islands, step_s)).result()
        return islands * played.useful / step_s

    def target(fleet: "Fleet") -> "Target":
        step_s = options.step_s or fleet.step_s
        if step_s is None:
            raise SettingsError("step_s is not set, and no island steps that would tell it")
        rounded_s = float(f"{step_s:.2g}")
        return Gain(least, lambda islands: merged(islands, rounded_s))

    return target
