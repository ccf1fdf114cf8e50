"""The hub's machine is lost at drawn moments: what was lost with it, and how soon merging goes on.

    python -m tests.benchmarks.machine_lost [--count N] [--seed N] [--only checkpoint|mirror]

A hub with its syncer, and two learners beside it, whose devices sleep. At a drawn moment hub and
syncer are killed, and their folder is deleted; then a hub is started with a checkpoint on another
disk, or in the mirror. The table has versions that were durable and are lost, the tokens that were
processed and are not in the books any more, and the time from the start of that hub's process to
its first merge, most of which Python's imports take.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from islands.keeping.finding import find
from tests.integration.programs import entries, open_room
from tests.integration.test_machine_lost import EVERY, Island, journal_of

LEFT = ("checkpoint", "mirror")


async def trial(kind: str, rng: random.Random) -> tuple[int, int, float]:
    """Lose a machine once; returns versions and tokens lost, and seconds until the next merge."""
    with tempfile.TemporaryDirectory(prefix="machine-lost-") as name:
        folder = Path(name)
        stored, mirror = folder / "stored", folder / "mirror"
        words: tuple[object, ...] = ("--checkpoints", stored, "--checkpoint_every", EVERY)
        if kind == "mirror":
            words = ("--mirror", mirror, "--durability", "mirrored")
        async with open_room(folder) as room:
            island = Island(room, folder)
            lost = await island.lose(island.hub("run", *words), folder / "run", rng.uniform(0, 5))
            before = lost.durable.merges, lost.durable.ledger.processed
            if kind == "mirror":
                durable = journal_of(mirror).durable
                kept = durable.merges, durable.ledger.processed
                hub, began_s = island.hub("mirror"), time.monotonic()
                tape = mirror / "tape.jsonl"
            else:
                manifest = find(str(stored), folder).manifest
                kept = manifest.merges, manifest.tokens
                hub, began_s = island.hub("again", "--resume", stored), time.monotonic()
                tape = folder / "again" / "tape.jsonl"
            await room.wait(lambda: hub.process.poll() is not None or entries(tape, "merged"))
            took_s = time.monotonic() - began_s
            if hub.process.poll() is not None:
                raise RuntimeError(str(hub))
            return max(0, before[0] - kept[0]), max(0, before[1] - kept[1]), took_s


async def main() -> int:
    parser = argparse.ArgumentParser(description="Lose the hub's machine at drawn moments.")
    parser.add_argument("--count", type=int, default=20, help="how often, of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", choices=LEFT, help="what is left")
    given = parser.parse_args()
    print("left | times | versions lost, median and most | tokens lost, most | s until a merge")
    for kind in (given.only,) if given.only else LEFT:
        rng = random.Random(f"{given.seed} {kind}")
        found = [await trial(kind, rng) for _ in range(given.count)]
        versions, tokens, times = zip(*found, strict=True)
        print(
            f"{kind} | {len(found)} | {median(versions):g}, {max(versions)} | {max(tokens):,} | "
            f"{median(times):.1f}, {max(times):.1f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
