"""`islands demo`: a small byte decoder learns Python's own source on three learners.

Each is a process of its own, and so are the syncer and the supervisor. After a third of the budget
one learner is killed with SIGKILL; a few seconds later it is restarted.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from islands.cli.parsing import Common
from islands.cli.run import make_hub, new_folder, say_opening, watch
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.tape.member_entries import Killed
from islands.settings.commands import DemoOptions
from islands.settings.groups import ListenOptions, RunFile
from islands.settings.host import RunOptions

if TYPE_CHECKING:
    from islands.model.jax_workload import JaxWorkload
    from islands.run.coordinator import Coordinator
    from islands.tasks.stdlib_bytes import StdlibBytes

KILL_AFTER = 1 / 3
"""Fraction of the budget after which the learner is killed."""
PROMPT = b"def read_file(path):\n    "
ROWS, LENGTH = 4, 128
BATCH_TOKENS = ROWS * LENGTH
TASK = "islands.tasks.stdlib_bytes:StdlibBytes"


def run(options: DemoOptions, _: Common) -> int:
    """Train, kill a learner, see it return, and show the results; return the exit code."""
    from islands.run.hosting.process_runtime import run as run_process

    os.environ.setdefault("PJRT_NPROC", "1")  # XLA's cores in this process, which only evaluates
    say_opening(options.learners)
    hub = make_hub(as_run(options))
    code = run_process(lambda: _demo(hub, options))
    if code == 0 and options.compare:
        from islands.cli.screen import Screen

        screen = Screen()
        screen.say("\nNow data-parallel training on as many tokens; it takes about as long.")
        screen.say(comparison(hub, options.learners))
    return code


def as_run(options: DemoOptions) -> RunOptions:
    settings = replace(
        PRESETS[Preset.DECOUPLED],
        run="demo",
        budget_tokens=options.tokens,
        learning_rate=1e-2,
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


def comparison(hub: "Coordinator", learners: int) -> str:
    """Train data-parallel on as many tokens, and return a sentence that compares the results.

    One learner takes batches that are as large as those of all learners together, at the same rate
    and in as many steps.
    """
    from islands.lab.settings.study import StudyOptions
    from islands.lab.study.cells import trials_of
    from islands.lab.study.trial import play

    spec, (name, values) = hub.spec, hub.folder.figures.metric
    if not values:
        return "This run has no evaluation, so there is nothing to compare."
    assert spec.settings.budget_tokens is not None, "the demonstration has a budget"
    study = StudyOptions(
        task=spec.task,
        task_settings=spec.task_settings,
        tokens=spec.settings.budget_tokens,
        seeds=(spec.settings.seed,),
        run=spec.settings,
        cells={"data-parallel": {"learners": learners, "data_parallel": True}},
    )
    (trial,) = trials_of(study)
    result = play(trial)
    least, ours = result.metric(name), values[-1]
    return (
        f"Data-parallel training on the same number of tokens, with batches {learners} "
        f"times as large, ends at {name} {least:.3f} (computed here in {result.wall_s:.0f} s); "
        f"this run ended at {ours:.3f}, which is {ours / least - 1:+.1%}."
    )


async def _demo(hub: "Coordinator", options: DemoOptions) -> int:
    from islands.cli.screen import Screen
    from islands.page.server import show_page

    await hub.open()
    screen = Screen()
    layout = hub.plan.layout
    screen.say(
        f"{layout.summary}, {len(layout.fragments)} fragments, {options.learners} learners, "
        f"{hub.settings.folder}"
    )
    screen.say(show_page(hub))
    summary = await watch(hub, screen, _killer(hub, options))
    if summary is None:
        return 0
    screen.conclude(hub.folder.figures, summary)
    if hub.has_final_values:
        sample = await asyncio.to_thread(_sample, hub)
        screen.say(f"\nWhat the model writes after {PROMPT.decode()!r}:\n")
        screen.console.print(sample, markup=False, highlight=False)
    screen.offer(hub)
    if not options.compare:
        screen.say("    islands demo --compare\n        the same, and data-parallel training")
    return 0


def _killer(hub: "Coordinator", options: DemoOptions) -> Callable[[], None]:
    """Return a function that kills the last learner once, if another one survives."""
    waiting = [*hub.names[1:][-1:]] if options.kill else []

    def kill_in_time() -> None:
        if waiting and hub.folder.figures.tokens >= KILL_AFTER * options.tokens:
            name = waiting.pop()
            hub.folder.write(hub.elapsed_s, "demo", Killed(name))
            hub.cluster.hold(name, options.away_s)
            hub.cluster.launcher.kill(name)

    return kill_in_time


def _sample(hub: "Coordinator") -> str:
    workload = cast("JaxWorkload", hub.workload)
    task = cast("StdlibBytes", workload.task)
    params = workload.params_of(hub.spec.settings, hub.final_values())
    return (PROMPT + b"".join(task.sample(params, PROMPT, 160))).decode(errors="replace")
