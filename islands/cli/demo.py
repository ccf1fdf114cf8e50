"""`islands demo`: a small byte decoder learns Python's own source on three learners.

Each is a process of its own, and so are the syncer and the supervisor. After a third of the budget
one learner is killed with SIGKILL; a few seconds later it is restarted.
"""

import asyncio
from typing import TYPE_CHECKING, cast

from islands.cli.parsing import Common
from islands.cli.run import make_hub, new_folder, prepare_process, watch
from islands.settings.groups import ListenOptions, RunFile
from islands.settings.host import DemoOptions, RunOptions
from islands.settings.run import RunSettings
from islands.tape.member_entries import Killed

if TYPE_CHECKING:
    from islands.cluster.coordinator import Coordinator
    from islands.tasks.stdlib_bytes import StdlibBytes
    from islands.training.jax_workload import JaxWorkload

KILL_SHARE = 1 / 3
PROMPT = b"def read_file(path):\n    "
ROWS, LENGTH = 4, 128
BATCH_TOKENS = ROWS * LENGTH
TASK = "islands.tasks.stdlib_bytes:StdlibBytes"


def run(options: DemoOptions, _: Common) -> int:
    """Train, kill a learner, see it return, and show the results; return the exit code."""
    from islands.hosting.process_runtime import run as run_process

    prepare_process()
    hub = make_hub(as_run(options))
    return run_process(lambda: _demo(hub, options))


def as_run(options: DemoOptions) -> RunOptions:
    """Return the options of the run that the demonstration is."""
    settings = RunSettings(
        run="demo",
        interval_steps=24,
        fragments=12,
        budget_tokens=options.tokens,
        learning_rate=7e-3,
        total_steps=options.tokens // (max(1, options.learners) * BATCH_TOKENS),
        seed=options.seed,
    )
    arguments: dict[str, object] = {"rows": ROWS, "length": LENGTH, "seed": options.seed}
    return RunOptions(
        file=RunFile(TASK, arguments, settings),
        listening=ListenOptions(listen="127.0.0.1:0"),
        learners=options.learners,
        folder=options.folder or new_folder("demo"),
    )


async def _demo(hub: "Coordinator", options: DemoOptions) -> int:
    from islands.cli.screen import Screen

    await hub.open()
    screen = Screen()
    layout = hub.plan.layout
    screen.say(
        f"{layout.size:,} parameters in {len(layout.fragments)} fragments, {options.learners} "
        f"learners, {hub.settings.folder}"
    )
    summary = await watch(hub, screen, _Killer(hub, options))
    if summary is None:
        return 0
    screen.conclude(hub.folder.figures, summary)
    if summary["advice"]:
        screen.say(f"\n{summary['advice']}")
    sample = await asyncio.to_thread(_sample, hub)
    screen.say(f"\nWhat the model writes after {PROMPT.decode()!r}:\n")
    screen.console.print(sample, markup=False, highlight=False)
    screen.say(f"\nEverything is in {hub.settings.folder}")
    return 0


class _Killer:
    """Kills the last learner once, after a third of the budget."""

    def __init__(self, hub: "Coordinator", options: DemoOptions) -> None:
        self._hub = hub
        self._options = options
        self._done = len(hub.names) < 2 or not options.kill  # noqa: PLR2004  somebody survives

    def __call__(self) -> None:
        hub, options = self._hub, self._options
        if self._done or hub.folder.figures.tokens < KILL_SHARE * options.tokens:
            return
        self._done = True
        name = hub.names[-1]
        hub.folder.write(hub.elapsed_s, "demo", Killed(name))
        hub.cluster.hold(name, options.away_s)
        hub.cluster.launcher.kill(name)


def _sample(hub: "Coordinator") -> str:
    workload = cast("JaxWorkload", hub.workload)
    task = cast("StdlibBytes", workload.task)
    params = workload.params_of(hub.spec.settings, hub.final_values())
    return task.sample(params, PROMPT, 160).decode(errors="replace")
