"""The hub's machine is lost at drawn moments: what was lost with it, and how soon merging goes on.

    python -m tests.benchmarks.machine_lost [--count N] [--seed N] [--only KIND]

A hub with its syncer, and two learners beside it, whose devices sleep. At a drawn moment hub and
syncer are killed, and their folder is deleted; then a hub is started with a checkpoint on another
disk, or in the mirror, or a standby is promoted by hand. Of the last kind (`itself`) the supervisor
runs apart, the syncer is killed, and a standby goes on 0.1 s after its link is gone, if the
supervisor agrees. The table has versions that were durable and are lost, the tokens that were
processed and are not in the books any more, the time from the start of that hub's process, from the
operator's command, or from the loss, to the first merge, and the longest time that a device was
idle between two steps, which is to be compared with runs that lose nothing.
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from islands.files.disk import RealDisk
from islands.keeping.finding import find
from islands.protocol.identities import Version
from islands.settings.run_spec import read
from islands.syncer.journal import JOURNAL, Journal
from tests.integration.programs import entries, merges, open_room, summary_of
from tests.integration.test_machine_lost import EVERY, Island, journal_of

MERGED_S = 2.0
"""So long learners train on after the loss."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What one loss cost.

    A learner had adopted the `versions`; `gap_s` is the longest time of its devices between two
    steps.
    """

    versions: int
    tokens: int
    merge_s: float
    gap_s: float


async def trial(kind: str, rng: random.Random) -> Loss:
    """Lose a machine once."""
    with tempfile.TemporaryDirectory(prefix="machine-lost-") as name:
        folder = Path(name)
        async with open_room(folder) as room:
            island = Island(room, folder)
            return await TRIALS[kind](kind, island, rng.uniform(0, 5))


async def beside(kind: str, island: Island, after_s: float) -> Loss:
    """Lose the host of hub and syncer, and start another hub, or promote a standby."""
    folder, room = island.folder, island.room
    stored, mirror, copy = folder / "stored", folder / "mirror", folder / "copy"
    words: tuple[object, ...] = ("--durability", "mirrored")
    if kind == "checkpoint":
        words = ("--checkpoints", stored, "--checkpoint_every", EVERY)
    if kind == "mirror":
        words = (*words, "--mirror", mirror)
    hub = island.hub("run", *words)
    if kind == "standby":
        key = Path(f"{island.token}.key")
        await room.wait(key.exists)
        island.standby("copy")
    lost = await island.lose(hub, folder / "run", after_s)
    began_s = time.monotonic()
    if kind == "standby":
        at = copy
        room.start("islands.cli", "promote", copy, "--key_file", key)
    elif kind == "mirror":
        at, hub = mirror, island.hub("mirror")
    else:
        at, hub = folder / "again", island.hub("again", "--resume", stored)
    durable = journal_of(at).durable if kind != "checkpoint" else None
    kept = (
        find(str(stored), folder).manifest.tokens if durable is None else durable.ledger.processed
    )
    await room.wait(lambda: entries(at / "tape.jsonl", "merged"))
    took_s = time.monotonic() - began_s
    tokens = max(0, lost.durable.ledger.processed - kept)
    return await after(island, at, tokens, took_s)


async def apart(_: str, island: Island, after_s: float) -> Loss:
    """Lose the host of a syncer, and its folder; a standby asks the supervisor."""
    folder, room, run = island.folder, island.room, island.folder / "run"
    key = ("--token_file", island.token)
    room.start("islands.supervisor", island.config, "--folder", run, *key)
    await room.wait((run / "hub.json").exists)
    words = ("--supervisor", island.address, "--listen", "127.0.0.1:0", "--folder", folder / "own")
    syncer = room.start("islands.syncer", *words, "--durability", "mirrored", *key)
    island.standby("copy", "--listen", "127.0.0.1:0", "--promote_after", "0.1s")
    await room.wait(lambda: merges(run) > 3 * EVERY)
    await asyncio.sleep(after_s)
    os.kill(syncer.pid, signal.SIGKILL)
    began_s = time.monotonic()
    await room.ended(syncer)
    spec = read(run)
    assert spec is not None
    fragments = len(spec[1].layout.fragments)
    lost = Journal(RealDisk(folder / "own" / JOURNAL), fragments).recover()
    assert lost is not None
    shutil.rmtree(folder / "own")
    tape = run / "tape.jsonl"
    found = await room.wait(lambda: [e for e in entries(tape, "merged") if e["actor"] == "copy"])
    took_s = time.monotonic() - began_s
    tokens = max(0, lost.durable.ledger.processed - int(str(found[0]["run_processed"])))
    return await after(island, run, tokens, took_s)


async def undisturbed(_: str, island: Island, after_s: float) -> Loss:
    """Lose nothing, for as long."""
    run = island.folder / "run"
    island.hub("run")
    await island.room.wait(lambda: merges(run) > 3 * EVERY)
    await asyncio.sleep(after_s + MERGED_S)
    return Loss(0, 0, 0.0, await gap_of(island, run))


async def after(island: Island, folder: Path, tokens: int, took_s: float) -> Loss:
    """Let the run go on and end; returns what the loss has cost in all."""
    gap_s = await gap_of(island, folder)
    begun: dict[object, Version] = {}
    for entry in entries(folder / "tape.jsonl", "merged"):
        version = Version.parse(str(entry["version"]))
        known = begun.setdefault(entry["fragment"], version)
        if version.epoch > known.epoch:  # a supervisor's tape has the merges before the loss, too
            begun[entry["fragment"]] = version
    told = dict.fromkeys(begun, 0)
    for name in ("ana", "ben"):
        for entry in entries(island.folder / name / "processes" / name / "tape.jsonl", "adopted"):
            version, fragment = Version.parse(str(entry["version"])), entry["fragment"]
            if version.epoch < begun[fragment].epoch:
                told[fragment] = max(told[fragment], version.number)
    # What goes on merges the next version after the one that it had.
    versions = sum(max(0, told[each] - begun[each].number + 1) for each in begun)
    return Loss(versions, tokens, took_s, gap_s)


async def gap_of(island: Island, folder: Path) -> float:
    """Let learners go on for a while and end the run; returns the longest of their step gaps."""
    await asyncio.sleep(MERGED_S)
    told = await island.room.run("islands.cli", "stop", "--folder", folder)
    assert told.process.returncode == 0, told
    summary = await island.room.wait(lambda: summary_of(folder)) or {}
    rows = msgspec.convert(summary["learners"], dict[str, dict[str, float]])
    return max(row["longest_stall_s"] for row in rows.values())


TRIALS = {"checkpoint": beside, "mirror": beside, "standby": beside, "itself": apart}
TRIALS["nothing"] = undisturbed


async def main() -> int:
    parser = argparse.ArgumentParser(description="Lose the hub's machine at drawn moments.")
    parser.add_argument("--count", type=int, default=20, help="how often, of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", choices=TRIALS, help="what is left")
    given = parser.parse_args()
    print(
        "left | times | versions lost, median and most | tokens lost, most | s until a merge | "
        "longest step gap of learners in ms, median and most"
    )
    for kind in (given.only,) if given.only else TRIALS:
        rng = random.Random(f"{given.seed} {kind}")
        found = [await trial(kind, rng) for _ in range(given.count)]
        versions, times = [each.versions for each in found], [each.merge_s for each in found]
        gaps = [1e3 * each.gap_s for each in found]
        print(
            f"{kind} | {len(found)} | {median(versions):g}, {max(versions)} | "
            f"{max(each.tokens for each in found):,} | {median(times):.1f}, {max(times):.1f} | "
            f"{median(gaps):.0f}, {max(gaps):.0f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
