"""`python -m islands.observer`: evaluates what a run publishes, while it goes on."""

import asyncio
import sys
from typing import TYPE_CHECKING

from islands.cli.command import main
from islands.cli.parsing import Common
from islands.settings.groups import default_name
from islands.settings.host import ObserverOptions

if TYPE_CHECKING:  # at run time they are imported where needed, so that --help answers at once
    from islands.layout.leaves import Layout
    from islands.model.evaluation import Judged
    from islands.model.interfaces import Workload
    from islands.settings.run_spec import RunSpec


def entry(options: ObserverOptions, _: Common) -> int:
    from islands.run.hosting.process_runtime import run

    name = options.name or default_name()
    return run(lambda: _observe(options, name))


async def _observe(options: ObserverOptions, name: str) -> int:
    from islands.protocol.identities import Role
    from islands.run.hosting import process_runtime as runtime
    from islands.run.hosting.hub_requests import Requester, check_same, fetch_run_spec
    from islands.run.roles import make_observer
    from messaging.clock import MonotonicClock

    connecting = options.connecting
    network = runtime.network_of(connecting, token=runtime.token_of(connecting))
    try:
        addresses = options.supervisor_urls
        requester = Requester(Role.OBSERVER, name)
        spec, plan = await fetch_run_spec(
            network, addresses, requester, wait_s=connecting.wait_s, say=runtime.say
        )
        workload, layout = await asyncio.to_thread(_prepare, spec, options)
        check_same(layout, plan.layout)
        began_s = MonotonicClock().now_s()
        tape = runtime.tape_in(options.folder, name, options.keeping, began_s=began_s)
        context = runtime.context_in(network, addresses, spec, plan, tape, began_s=began_s)

        def report(judged: "Judged", figures: dict[str, float]) -> None:
            shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
            runtime.say(f"step {judged.clock:.0f}, {judged.tokens:,} tokens: {shown}")

        observer = make_observer(
            name,
            context,
            evaluate=lambda values: workload.evaluate(spec.settings, values),
            report=report,
            failed=runtime.SaidOnce(runtime.say),
            interval_s=options.evaluate_every_s,
        )
        await runtime.live([observer], observer.leave, tape)
    finally:
        await network.close()
    return 0


def _prepare(spec: "RunSpec", options: ObserverOptions) -> "tuple[Workload, Layout]":
    """Read the corpus and plan the model, off the loop that keeps systemd's watchdog quiet."""
    from islands.model.workload import load_workload

    workload = load_workload(spec, options.task_settings, allowed=options.tasks)
    return workload, workload.plan(spec.settings).layout


if __name__ == "__main__":
    sys.exit(
        main(
            entry,
            ObserverOptions,
            program="python -m islands.observer",
            description="Evaluate what a run publishes, while it goes on.",
        )
    )
