"""A hub as a process of its own, without learners: `python -m islands.syncer`, `….supervisor`."""

from collections.abc import Callable

from islands.hosting import run, say
from islands.hub import Hub, HubSettings, banner, settle
from islands.option_groups import RunFile
from islands.run_spec import RunSpec, read
from islands.workload import load_workload


def spec_of(file: RunFile) -> RunSpec:
    """What a run's file says the run is."""
    return RunSpec(file.run, file.task, dict(file.task_settings))


def serve(file: RunFile, told: Callable[[RunSpec], HubSettings]) -> int:
    """Run a hub to the end of its run; returns the exit code."""
    return run(lambda: _serve(told(spec_of(file))))


async def _serve(settings: HubSettings) -> int:
    planned = read(settings.folder) is not None  # a restart needs neither JAX nor the task
    workload = None if planned else load_workload(settings.spec)
    _, plan = settle(settings.folder, settings.spec, workload)
    hub = Hub(settings, plan, None)
    await hub.open()
    banner(hub)
    summary = await hub.run()
    if summary is None:
        say("stopped; the same command in the same folder goes on")
    else:
        say(f"the run has ended: {summary['reason']}; see {settings.folder / 'summary.json'}")
    return 0
