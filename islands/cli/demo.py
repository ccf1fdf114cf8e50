"""`islands demo`: a small byte decoder learns Python's own source on three learners.

A third of the way in, one learner is killed; a few seconds later its host starts it again.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from islands.cli.screen import Screen
from messaging.clock import WallClock

if TYPE_CHECKING:
    from islands.system import LocalSystem

SHOW_INTERVAL_S = 0.25
DROP_SHARE = 1 / 3
PROMPT = b"def read_file(path):\n    "
ROWS, LENGTH = 4, 128
BATCH_TOKENS = ROWS * LENGTH
METRIC = "val_bits_per_byte"


def run(
    tokens: int = 1_000_000,
    learners: int = 3,
    away_s: float = 8.0,
    folder: Path | None = None,
    seed: int = 0,
) -> int:
    """Train, drop a learner, take it back, show what came of it.

    Args:
        tokens: budget of the run, in bytes of source read by all learners together.
        learners: how many share this machine.
        away_s: seconds for which one learner is gone; longer than it takes to be evicted.
        folder: of the run; by default a new one under runs/.
        seed: of weights and data order.

    Returns:
        The exit code.
    """
    from islands.jax_settings import enable_compilation_cache

    enable_compilation_cache(Path(".jax_cache"))
    if folder is None:
        started = datetime.fromtimestamp(WallClock().now_s(), tz=UTC)
        folder = Path("runs") / started.strftime("demo-%Y%m%d-%H%M%S")
    from islands.config import RunSettings
    from islands.system import LocalSystem
    from islands.tasks.stdlib_bytes import StdlibBytes

    settings = RunSettings(
        run="demo",
        interval_steps=24,
        fragments=12,
        budget_tokens=tokens,
        learning_rate=7e-3,
        total_steps=tokens // (max(1, learners) * BATCH_TOKENS),
        seed=seed,
    )
    task = StdlibBytes(rows=ROWS, length=LENGTH, seed=seed)
    system = LocalSystem(task, settings, learners=learners)
    screen = Screen(tokens, METRIC)
    size = system.model.layout.size
    fragments = len(system.model.layout.fragments)
    screen.say(f"{size:,} parameters in {fragments} fragments, {learners} learners, {folder}")
    summary = asyncio.run(_watched(system, screen, folder, away_s))
    screen.conclude(system.folder.figures, summary)
    sample = task.sample(system.model.params_of(system.values), PROMPT, 160)
    screen.say(f"\nWhat the model writes after {PROMPT.decode()!r}:\n")
    screen.console.print(sample.decode(errors="replace"), markup=False, highlight=False)
    screen.say(f"\nEverything is in {folder}")
    return 0


async def _watched(
    system: "LocalSystem", screen: Screen, folder: Path, away_s: float
) -> dict[str, object]:
    """Run, with somebody watching, and with one learner dropped."""
    running = asyncio.create_task(system.run(folder))
    dropped = False
    budget = system.settings.budget_tokens or 1
    with screen:
        while True:  # until the run has ended
            await asyncio.sleep(SHOW_INTERVAL_S)
            if running.done():
                break
            screen.show(system.folder.figures, system.tokens, system.elapsed_s)
            if not dropped and system.tokens >= DROP_SHARE * budget and len(system.names) > 1:
                dropped = True
                system.drop(system.names[-1], away_s)
    return await running
