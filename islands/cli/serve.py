"""A hub as a process of its own, without learners: `python -m islands.syncer`, `….supervisor`."""

from collections.abc import Callable

from islands.cluster.coordinator import Hub, HubSettings, banner
from islands.cluster.run_claim import settle, unless_it_fails
from islands.hosting.process_runtime import run_service, say
from islands.hosting.watchdog import Watchdog
from islands.settings.groups import RunFile
from islands.settings.run_spec import RunSpec, read
from islands.training.workload import load_workload


def spec_of(file: RunFile) -> RunSpec:
    """What a run's file says the run is."""
    return RunSpec(file.run, file.task, dict(file.task_settings))


def serve(file: RunFile, told: Callable[[RunSpec], HubSettings], *, restart: bool = False) -> int:
    """Run a hub to the end of its run, if need be from its beginning; returns the exit code."""
    settings = told(spec_of(file))
    planned = not restart and read(settings.folder) is not None  # then JAX is not needed
    workload = None if planned else load_workload(settings.spec)
    claim = settle(settings.folder, settings.spec, workload, settings.start_from, restart=restart)
    with unless_it_fails(claim):
        hub = Hub(settings, claim, None)  # before the loop, which hears nobody while it plans
    return run_service(lambda watchdog: _serve(hub, watchdog))


async def _serve(hub: Hub, watchdog: Watchdog) -> int:
    await hub.open()
    banner(hub)
    summary = await hub.run(watchdog.ready)
    if summary is None:
        say("stopped; the same command in the same folder goes on")
    else:
        where = hub.settings.folder / "summary.json"
        say(f"the run has ended: {hub.end.sentence}; see {where}")
        if summary["advice"]:
            say(str(summary["advice"]))
    return hub.end.exit_code
