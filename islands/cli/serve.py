"""A hub that starts no learners: `python -m islands.syncer` and `python -m islands.supervisor`."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from islands.cli.cost import budget_of, held_to
from islands.cli.divergence import AGAIN, guarded
from islands.cli.parsing import Common
from islands.costs.budget import Budget
from islands.files.run_files import SUMMARY_FILE
from islands.layout.loop_layout import LoopLayout
from islands.metrics.sources import metrics_served
from islands.model.memory import host_memory_bytes, hub_lacks
from islands.model.workload import OwnLoop, load_workload
from islands.numerics.outer import outer_optimizer
from islands.page.server import show_page
from islands.protocol.errors import TaskError, UserError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.addresses import host_port
from islands.run import run_claim
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.first_layout import FirstLayout, first_layout
from islands.run.hosting.process_runtime import run_service, say
from islands.run.hosting.watchdog import Watchdog
from islands.settings.groups import OWN_LOOP, RunFile
from islands.settings.host import SupervisorOptions, SyncerOptions
from islands.settings.run_spec import RunSpec, read
from islands.tasks.factory import allowed_by, task_words

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def spec_of(file: RunFile) -> RunSpec:
    outer_optimizer(file.run.outer)  # or it refuses
    return RunSpec.of(file)


def require_task(spec: RunSpec, folder: Path) -> None:
    """Refuse to begin a run without a task, which only a hub of its own can wait to be told."""
    if spec.task == OWN_LOOP and read(folder) is None:
        raise UserError(
            "task is not set; name it as package.module:Class, or have python -m islands.syncer "
            "wait for training loops of your own"
        )


def serve(options: SyncerOptions | SupervisorOptions, common: Common) -> int:
    """Run a hub until its run ends, beginning or resuming the run; return the exit code."""
    while (code := _serve_once(options, common)) == AGAIN and isinstance(options, SyncerOptions):
        options = replace(options, resume=None)
    return code


def _serve_once(options: SyncerOptions | SupervisorOptions, common: Common) -> int:
    folder, budget, given = options.folder, budget_of(options.budget), common.given
    spec = spec_of(options.file)
    if spec.task == OWN_LOOP and "run.merge_moments" not in (given or ()):
        spec = replace(spec, settings=replace(spec.settings, merge_moments=False))
    spec = run_claim.spec_in(folder, spec, given)
    if isinstance(options, SyncerOptions):
        from islands.cli.keeping import resumed

        spec = resumed(options.resume, folder, options.saving, spec, given, options.file.task)
    settings = CoordinatorSettings.of(options, spec, folder)
    planned = read(folder) is not None  # a planned run needs no JAX
    allowed = allowed_by(options.file.task)
    workload = None if planned else load_workload(spec, allowed=allowed)
    if isinstance(workload, OwnLoop):
        waited_for = _wait_for_layout(settings, workload)
        if waited_for is None:
            return 0
        settings, workload = waited_for
    waited = isinstance(workload, OwnLoop)  # no member came first to another hub
    claim = run_claim.claim_folder(
        *(folder, spec, workload, settings.start_from),
        may_return=settings.listening.port != 0 and not waited,
    )
    with run_claim.released_on_failure(claim):
        hub = Coordinator(settings, claim, None)  # before the event loop, which this would block
    return run_service(lambda watchdog: _serve(hub, watchdog, budget, common.words))


def _wait_for_layout(
    settings: CoordinatorSettings, workload: OwnLoop
) -> tuple[CoordinatorSettings, OwnLoop] | None:
    """Wait for the layout that the first loop tells; None if a signal ended that."""
    run_claim.require_room(settings.folder, settings.start_from)
    listening = settings.listening
    found: list[FirstLayout] = []

    def check(layout: LoopLayout) -> None:
        plan = replace(workload, layout=layout).plan(settings.spec.settings)
        run_claim.check_plan(settings.spec, plan)
        lacks = hub_lacks(plan.layout, settings.spec.settings, host_memory_bytes())
        if settings.syncer_here and lacks:
            raise TaskError(lacks)

    async def wait(watchdog: Watchdog) -> int:
        def waits(address: str) -> None:
            watchdog.ready("waiting for the first learner, which tells the layout")
            say(
                f"run {settings.spec.settings.run!r} begins with the first training loop that "
                f"joins, which tells the layout:\n\n    {_joining(address, settings)}\n"
            )

        first = await first_layout(listening, settings.connecting, check, waits)
        found.extend([] if first is None else [first])
        return 0

    run_service(wait)
    for first in found:
        at = host_port(listening.host, first.port)
        settings = replace(settings, listening=replace(listening, listen=at))
        return settings, replace(workload, layout=first.layout)
    say("stopped before a learner has joined; the same command waits again")
    return None


def _joining(address: str, settings: CoordinatorSettings) -> str:
    token = "" if settings.connecting.token_file is None else ', token_file="TOKEN"'
    return f'islands.join("{address}", params, tokens_per_step=…{token})'


async def _serve(
    hub: Coordinator, watchdog: Watchdog, budget: Budget | None, words: tuple[str, ...]
) -> int:
    await hub.open()
    banner(hub)
    async with metrics_served(hub), held_to(budget, hub), guarded(hub, words) as guard:
        summary = await hub.run(watchdog.ready)
    if guard.goes_back and not hub.signalled:
        return AGAIN
    if summary is None:
        say("stopped; the same command in the same folder goes on")
    else:
        where = hub.settings.folder / SUMMARY_FILE
        say(f"the run has ended: {hub.cluster.end.sentence}; see {where}")
        if summary["advice"]:
            say(str(summary["advice"]))
    return hub.cluster.end.exit_code


def banner(hub: Coordinator) -> None:
    """Tell the person who started a hub how learners join."""
    layout, token_file = hub.plan.layout, hub.settings.connecting.token_file
    address = hub.network.url(SUPERVISOR)
    if hub.spec.task == OWN_LOOP:
        reach = "in every training loop that is to take part (islands.torch.join for PyTorch):"
        command = _joining(address, hub.settings)
    else:
        reach = "on every host that is to train, where the task can be imported:"
        token = "" if token_file is None else " --token_file TOKEN"
        authority = " --tls_ca CA.pem" if address.startswith("wss:") else ""
        tasks = " ".join(["", *task_words(hub.spec.task)])
        command = f"islands join --supervisor {address}{token}{authority}{tasks}"
    if urlsplit(address).hostname in LOOPBACK:
        reach = "more learners can join from this machine (--listen HOST:PORT lets other hosts in):"
    say(
        f"run {hub.spec.settings.run!r}: {layout.summary}, {len(layout.fragments)} "
        f"fragments, folder {hub.settings.folder}\n{reach}\n\n"
        f"    {command}\n"
    )
    lacks = hub_lacks(layout, hub.spec.settings, host_memory_bytes())
    if lacks and (hub.settings.syncer_here or SYNCER in hub.cluster.spec.launched):
        say(lacks)
    if token_file is not None:
        say(f"TOKEN is a copy of {token_file}")
    for doubt in hub.spec.settings.rate_doubts:
        say(doubt)
    say(show_page(hub))
