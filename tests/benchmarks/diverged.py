"""Divergence on purpose, with real processes: does the run end where an undisturbed one does?

    python -m tests.benchmarks.diverged --seeds 3

A small network is trained by two learners. In its middle the learning rate is 100 times as high
for some seconds, then the loss is no number, until the run has told that it diverged. It is played
three times for each seed: undisturbed, gone back by itself, and by the command that was told.
"""

import argparse
import asyncio
import json
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import msgspec

from tests.integration.programs import (
    Entry,
    Program,
    Room,
    entries,
    imbalance,
    logged,
    merges,
    open_room,
    summary_of,
    write_config,
)

TOKENS = 80_000
DISTURBED_AFTER = 120
HIGH_S = 10.0
"""So long the rate is high at most: what is told before that is told of the loss."""


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A run in a folder of a room, whose task reads the file `fault`."""

    room: Room
    seed: int = 0
    divergence_s: float = 2.0
    tokens: int = TOKENS

    @property
    def folder(self) -> Path:
        return self.room.folder / "run"

    @property
    def fault(self) -> Path:
        return self.room.folder / "fault"

    def hub(self, on_divergence: str) -> Program:
        config = write_config(
            self.room.folder / "run.yaml",
            task="tests.diverging_task:Diverging",
            task_settings={"fault": str(self.fault)},
            learners=2,
            checkpoint_every="1s",
            keep=1000,  # a hub that is killed holds no checkpoint back any more
            divergence_s=self.divergence_s,
            on_divergence=on_divergence,
            run={
                "run": "diverges",
                "interval_steps": 16,
                "fragments": 2,
                "seed": self.seed,
                "budget_tokens": self.tokens,
                "learning_rate": 0.1,
                "total_steps": 5000,
                "timing": {"heartbeat_s": 0.25},
            },
        )
        return self.room.start("islands.cli", "run", config, "--folder", self.folder)

    def told(self) -> list[Entry]:
        return logged(self.folder, "run_diverged")

    async def disturb(self, times: int = 1, *, healed: bool = True) -> Entry:
        """Disturb the run until it tells that it has diverged so many times."""
        self.fault.write_text("high")
        for _ in range(int(HIGH_S / 0.1)):
            await asyncio.sleep(0.1)
            if len(self.told()) >= times:
                break
        self.fault.write_text("nan")
        told = (await self.room.wait(lambda: self.told()[times - 1 :]))[0]
        if healed:
            self.fault.unlink()
        return told

    async def again(self, told: Entry, hub: Program) -> Program:
        """End a paused hub, and give the command that it told."""
        await self.room.wait(lambda: logged(self.folder, "paused"))
        hub.process.terminate()
        await self.room.ended(hub)
        words = shlex.split(str(told["command"]).removeprefix("islands "))
        return self.room.start("islands.cli", *words)

    async def ended(self, hub: Program) -> float:
        """Wait for a run's end; returns what its final values were judged."""
        assert await self.room.ended(hub) == 0, hub
        summary = summary_of(self.folder)
        assert summary is not None
        assert imbalance(summary) == 0
        figures = entries(self.folder / "metrics.jsonl", "evaluation")[-1]
        return float(str(figures["cross_entropy"]))


async def play(folder: Path, how: str, seed: int) -> dict[str, object]:
    async with open_room(folder) as room:
        run = Disturbed(room, seed)
        hub = run.hub("resume" if how == "by itself" else "pause")
        row: dict[str, object] = {"how": how, "seed": seed}
        if how != "undisturbed":
            await room.wait(lambda: merges(run.folder) >= DISTURBED_AFTER)
            told = await run.disturb()
            row |= {key: told[key] for key in ("why", "checkpoint", "lost_tokens")}
            if how == "by command":
                hub = await run.again(told, hub)
        row["cross_entropy"] = await run.ended(hub)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds, found = parser.parse_args().seeds, dict[str, list[float]]()
    for how in ("undisturbed", "by itself", "by command"):
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                row = asyncio.run(play(Path(folder), how, seed))
            print(json.dumps(row), flush=True)
            found.setdefault(how, []).append(msgspec.convert(row["cross_entropy"], float))
    for how, values in found.items():
        print(f"{how}: {mean(values):.4f} ± {stdev(values):.4f} ({len(values)} seeds)")


if __name__ == "__main__":
    main()
