"""`islands run CONFIG`: a whole run on this machine, which learners of other hosts may join."""

import asyncio
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from islands.cli.cost import budget_of, held_to
from islands.cli.parsing import Common, parse
from islands.protocol.errors import SettingsError
from islands.run.hosting.standard_streams import fitted
from islands.settings.host import LearnerOptions, RunOptions

if TYPE_CHECKING:
    from islands.cli.screen import Screen
    from islands.costs.budget import Budget
    from islands.engines.needs import Needs
    from islands.run.coordinator import Coordinator
    from islands.run.records.summary import Summary

SHOW_INTERVAL_S = 0.25


def run(options: RunOptions, common: Common) -> int:
    """Run to the end of the budget, or until a signal stops it; return the exit code."""
    os.environ.setdefault("PJRT_NPROC", "1")  # XLA's cores in this process, which only evaluates
    from islands.cli.divergence import AGAIN
    from islands.run.hosting.process_runtime import run as run_process

    options = without_learners(options, common.given)
    say_opening(options.learners, islands=len(options.islands))
    budget = budget_of(options.budget)
    code = AGAIN
    while code == AGAIN:
        # Before the event loop, which planning a large model would block:
        hub = make_hub(options, common.given)
        code = run_process(partial(_run, hub, budget, common.words))
        options = replace(options, folder=hub.settings.folder, resume=None)
    return code


def say_opening(learners: int, *, islands: int = 0) -> None:
    """Say at once what begins, and what it usually takes, before anything heavy is imported."""
    who = "a learner" if learners == 1 else f"{learners} learners"
    text = (
        f"islands: a hub {f'and {who} start' if learners else 'starts'} on this machine; a first "
        "step usually comes within half a minute, once the learners have compiled it"
    )
    if islands and not learners:
        text = "islands: a hub starts on this machine, and has its islands placed"
    print(fitted(text, sys.stdout), flush=True)


def new_folder(name: str) -> Path:
    """Return a folder under runs/ whose name tells when the run began."""
    from messaging.clock import WallClock

    started = datetime.fromtimestamp(WallClock().now_s(), tz=UTC)
    return Path("runs") / f"{name}-{started:%Y%m%d-%H%M%S}"


async def _run(hub: "Coordinator", budget: "Budget | None", words: tuple[str, ...]) -> int:
    from islands.cli.divergence import AGAIN, guarded
    from islands.cli.screen import Screen
    from islands.cli.serve import banner

    await hub.open()
    banner(hub)
    screen = Screen()
    async with held_to(budget, hub), guarded(hub, words) as guard:
        summary = await watch(hub, screen)
    if guard.goes_back and not hub.signalled:
        return AGAIN
    if summary is None:
        screen.say(f"stopped; the same command with --folder {hub.settings.folder} goes on")
        return 0
    screen.conclude(hub.folder.figures, summary)
    screen.say(f"\nThe run has ended: {hub.cluster.end.sentence}")
    screen.offer(hub)
    return hub.cluster.end.exit_code


def make_hub(options: RunOptions, given: Collection[str] | None = None) -> "Coordinator":
    """Make the hub of a run on this machine, planned from its task."""
    from islands.cli.keeping import resumed
    from islands.cli.serve import require_task, spec_of
    from islands.model.workload import load_workload
    from islands.run.coordinator import Coordinator, CoordinatorSettings
    from islands.run.hosting.process_runtime import compiled_folder
    from islands.run.local_cluster import LearnerSettings, local_hub
    from islands.run.run_claim import claim_folder, released_on_failure, spec_in
    from islands.tasks.factory import allowed_by

    entries = read_entries(options)
    spec = spec_of(options.file)
    folder = options.folder or new_folder(spec.settings.run)
    spec = spec_in(folder, spec, given)
    spec = resumed(options.resume, folder, options.saving, spec, given, options.file.task)
    require_task(spec, folder)
    workload = load_workload(spec, allowed=allowed_by(options.file.task))
    workload.keep_compiled(compiled_folder())
    claim = claim_folder(
        *(folder, spec, workload, options.file.start_from),
        may_return=options.folder is not None and options.listening.port != 0,
    )
    settings = CoordinatorSettings.of(options, spec, folder)
    learners = LearnerSettings(
        count=options.learners,
        devices=options.devices,
        model_parallel=options.model_parallel,
        threads=options.threads,
        cache=compiled_folder(),
    )
    with released_on_failure(claim):
        elsewhere = None
        if entries:
            from islands.engines.hub import EnginesOfRun

            elsewhere = EnginesOfRun.of(entries, folder, extend=options.extend)
        return local_hub(settings, claim, workload, learners, Coordinator, elsewhere=elsewhere)


def without_learners(options: RunOptions, given: Collection[str] | None) -> RunOptions:
    """Return the options; where engines place islands, learners start here only if one says so."""
    here = given is None or "learners" in given
    return options if here or not options.islands else replace(options, learners=0)


def read_entries(options: RunOptions) -> "dict[str, Needs]":
    """Return the entries of a run's table `islands`, by name; none without a table."""
    if not options.islands:
        return {}
    from islands.engines.engine import RunMark, make_engine
    from islands.engines.hub import learner_words
    from islands.engines.needs import read_islands

    entries = read_islands(options.islands)
    for name, needs in entries.items():
        words = ["--name", f"{name}-0", *learner_words(needs.learner)]
        parse(LearnerOptions, words, program=f"islands.{name}.learner", description="")
        make_engine(needs.engine, RunMark("", ""), needs.settings)
        try:
            needs.variables(os.environ)
        except SettingsError as error:
            raise SettingsError(f"islands.{name}.{error}") from error
    return entries


async def watch(
    hub: "Coordinator", screen: "Screen", when: "Callable[[], None] | None" = None
) -> "Summary | None":
    """Run a hub and refresh the screen meanwhile; `when` is called after each refresh."""
    from islands.metrics.sources import metrics_served
    from islands.run.run_status import run_status_of

    async with metrics_served(hub):
        running = asyncio.create_task(hub.run())
        with screen:
            while True:  # until the run has ended
                await asyncio.sleep(SHOW_INTERVAL_S)
                if running.done():
                    break
                screen.show(run_status_of(hub))
                if when is not None:
                    when()
        return await running
