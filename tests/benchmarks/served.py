"""What serving a model costs and shows while it is trained: figures of docs/stories/served.md.

    python -m tests.benchmarks.served [--seeds 0 1 2] [--seconds 40] [--picture FILE]

For each seed the run of `examples/stories/served.yaml` is played, its two learners and its hub on
this host, and beside it two servers of `served.py`: one that follows the run through a proxy that
counts its bytes, and one that has fetched values once (`--once`). One client asks both in turn, one
request after the other, so that both answer on the same machine at the same load. Written are:

* the 50th and 99th percentile of the time of an answer: of the server that follows, of its answers
  that began within `DURING_S` before newer values were there, and of the server that does not;
* how many merges an answer was behind the syncer when it was asked for: the versions that it names
  against those that the hub's tape had committed by then;
* the bytes that reached the follower, against whole values in float32 for each merge;
* whether the values that it answers from at the end are those of `final.safetensors`.
"""

import argparse
import asyncio
import hashlib
import json
import statistics
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import numpy as np

import islands
from examples.stories.served import Clicks
from islands.lab.faults.paths import Paths
from islands.lab.faults.proxy import free_port
from islands.run.hosting.process_identity import Identity, facts
from tests.integration.programs import ROOT, Program, Room, entries, hub_address

STORIES = ROOT / "examples" / "stories"
FAR = "server"
DURING_S = 0.05
EVERY_S = 0.004
"""Pause of the client between two requests."""
LIMIT_S = 300.0


@dataclass(slots=True)
class Answers:
    """The answers of one server: when each was asked for, on the wall clock, and how long it took.

    `held` is the number of merges in the values that it came from.
    """

    asked_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)

    def percentile(self, share: float, where: Sequence[bool] | None = None) -> float:
        """Return a percentile in milliseconds."""
        took = np.array(self.took_s)[slice(None) if where is None else np.array(where)]
        return float(np.percentile(took, share) * 1000) if len(took) else float("nan")

    def during(self) -> list[bool]:
        """Whether newer values came within `DURING_S` after an answer was asked for."""
        found, until_s = [False] * len(self.held), float("-inf")
        for index in range(len(self.held) - 2, -1, -1):
            if self.held[index + 1] > self.held[index]:
                until_s = self.asked_s[index + 1]
            found[index] = self.asked_s[index] >= until_s - DURING_S
        return found


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run; times in milliseconds."""

    seed: int
    answers: int
    p50_following: float
    p99_following: float
    p99_during: float
    p50_once: float
    p99_once: float
    merges: int
    received: int
    lag_mean: float
    lag_at_most_one: float
    lag_most: int
    bytes_received: int
    bytes_whole: int
    equal: bool
    val_loss: float


async def ask(session: aiohttp.ClientSession, port: int, visitor: int, answers: Answers) -> None:
    asked_s, began_s = time.time(), time.perf_counter()
    async with session.get(f"http://127.0.0.1:{port}/visitors/{visitor}") as response:
        told = await response.json()
    answers.took_s.append(time.perf_counter() - began_s)
    answers.asked_s.append(asked_s)
    answers.held.append(sum(int(version.partition(".")[2]) for version in told["versions"]))


async def model_of(session: aiohttp.ClientSession, port: int) -> dict[str, object]:
    async with session.get(f"http://127.0.0.1:{port}/model") as response:
        found: dict[str, object] = await response.json()
        return found


async def play(seed: int, seconds: float, picture: Path | None) -> Figures:
    identities: dict[str, Identity] = {}
    with tempfile.TemporaryDirectory() as place:
        room, folder = Room(Path(place)), Path(place) / "run"
        async with Paths(0, identities.get, [FAR]) as paths, aiohttp.ClientSession() as session:
            try:
                hub = room.start(
                    *("islands.syncer", "--config", STORIES / "served.yaml", "--folder", folder),
                    *("--listen", f"127.0.0.1:{paths.ports.hub}"),
                    *("--advertise", f"127.0.0.1:{paths.ports.hub_proxy}"),
                    *("--run.seed", seed, "--task_settings.seed", seed),
                    *("--run.budget_tokens", "null", "--run.budget_s", seconds),
                    cwd=STORIES,
                )
                await room.wait(lambda: hub_address(folder), LIMIT_S)
                ports = free_port(), free_port()
                servers = [serve(room, paths.ports.hub_proxy, ports[0])]
                found = facts(servers[0].pid)
                assert found is not None
                identities[FAR] = Identity(servers[0].pid, found.started_ticks)
                servers.append(serve(room, paths.ports.hub_proxy, ports[1], "--once"))
                at_hub = ("--supervisor", f"127.0.0.1:{paths.ports.hub_proxy}", "--tasks", "served")
                for name in ("europe", "america"):
                    room.start("islands.learner", *at_hub, "--name", name, cwd=STORIES)
                await room.wait(lambda: all("Running on" in each.out for each in servers))
                following, once = Answers(), Answers()
                rng = np.random.default_rng(seed)
                while hub.process.poll() is None:  # ends by the run's budget
                    for port, answers in zip(ports, (following, once), strict=True):
                        await ask(session, port, int(rng.integers(8000)), answers)
                        await asyncio.sleep(EVERY_S)
                assert await room.ended(hub) == 0, hub
                model = await model_of(session, ports[0])
                received = sum(each.down.delivered_bytes for each in paths.connections_of(FAR))
            finally:
                room.close()
        return figures(seed, folder, following, once, model, received, picture)


def serve(room: Room, hub: int, port: int, *more: str) -> Program:
    words = (f"127.0.0.1:{hub}", "--port", str(port), *more)
    return room.start_words((sys.executable, str(STORIES / "served.py"), *words))


def figures(
    seed: int,
    folder: Path,
    following: Answers,
    once: Answers,
    model: dict[str, object],
    received: int,
    picture: Path | None,
) -> Figures:
    began = entries(folder / "tape.jsonl", "process_began")[0]
    offset_s = float(str(began["wall_s"])) - float(str(began["at_s"]))
    committed = [
        offset_s + float(str(entry["at_s"]))
        for entry in entries(folder / "tape.jsonl", "committed")
        if not str(entry["version"]).endswith(".0")
    ]
    lags = [
        max(0, bisect_right(committed, asked_s) - held)
        for asked_s, held in zip(following.asked_s, following.held, strict=True)
    ]
    values = islands.load(folder)
    digest = hashlib.sha256()
    for path in sorted(values):
        digest.update(values[path].tobytes())
    taken = following.held[-1] - following.held[0]
    whole = 4 * sum(value.size for value in values.values()) / 4 * taken
    if picture is not None:
        draw(picture, following, once, committed, lags)
    return Figures(
        seed=seed,
        answers=len(following.held),
        p50_following=following.percentile(50),
        p99_following=following.percentile(99),
        p99_during=following.percentile(99, following.during()),
        p50_once=once.percentile(50),
        p99_once=once.percentile(99),
        merges=taken,
        received=int(str(model["merges"])),
        lag_mean=statistics.fmean(lags),
        lag_at_most_one=statistics.fmean(lag <= 1 for lag in lags),
        lag_most=max(lags),
        bytes_received=received,
        bytes_whole=int(whole),
        equal=model["digest"] == digest.hexdigest()
        and model["versions"] == islands.described(folder)["versions"],
        val_loss=Clicks(seed=seed).evaluate(values, None)["val_loss"],
    )


def draw(
    path: Path, following: Answers, once: Answers, committed: Sequence[float], lags: Sequence[int]
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    begin_s = following.asked_s[0]
    figure, (above, middle, below) = plt.subplots(3, 1, figsize=(9, 7), layout="constrained")
    for name, answers in (("follows the run", following), ("fetched values once", once)):
        at_s = np.array(answers.asked_s) - begin_s
        above.plot(at_s, np.array(answers.took_s) * 1000, ".", markersize=2, label=name)
    above.set_yscale("log")
    above.set_ylabel("time of an answer (ms)")
    above.legend(markerscale=5)
    at_s = np.array(following.asked_s) - begin_s
    middle.plot(at_s, following.held, label="merges in the values that answer")
    since = [each - begin_s for each in committed]
    middle.step(since, range(1, len(since) + 1), where="post", label="merges committed", ls="--")
    middle.set_xlim(*above.get_xlim())
    middle.set_ylabel("merges")
    middle.legend()
    most = max(lags) + 1
    counts = np.bincount(lags, minlength=most) / len(lags)
    below.bar(range(most), counts)
    below.set_xticks(range(most))
    below.set_xlabel("merges by which an answer is behind the syncer")
    below.set_ylabel("share of answers")
    above.set_xlabel("seconds since the first answer")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    found = []
    for number, seed in enumerate(options.seeds):
        picture = options.picture if number == 0 else None
        found.append(asyncio.run(play(seed, options.seconds, picture)))
        print(json.dumps(asdict(found[-1])), flush=True)
    for name in Figures.__dataclass_fields__:
        values = [float(getattr(each, name)) for each in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name:16} {statistics.fmean(values):12.4g} ± {spread:.2g}")


if __name__ == "__main__":
    main()
