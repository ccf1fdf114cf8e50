"""The story *routes* with one warehouse cut off for a while, beside training in one place.

    python -m tests.benchmarks.routes [--seeds 0,1,2] [--for_good] [--picture FILE] [--folder PATH]

For each seed, `examples/stories/routes.py` runs with real processes whose links pass a relay. Once
warehouse 5 has read 30 % of its trips, the relay passes nothing to or from it, until the others
have read 30 % more of theirs; with `--for_good` for ever. Errors are mean absolute percentage
errors over trips of all regions that are held back: of the mean of all values, which the run ends
with; of each warehouse's own values at its last look. *In one place* one learner
trains on the trips of all warehouses, as many in all, in steps as large as eight warehouses take.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from examples.stories import routes
from islands import load

AWAY = 5
LEAVES, ALONE = 0.3, 0.3
TRIPS = 128_000  # of each warehouse, as routes.yaml has it
ROWS = 512  # of a batch in one place
LOOK_S = 0.2


@dataclass(frozen=True)
class Roads:
    """A relay that all links pass, but for those of who is away: it knows who dials whom."""

    ports: Mapping[str, int]
    away: set[str] = field(default_factory=set)
    _joined: list[asyncio.Task[object] | None] = field(default_factory=list)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def end(self) -> None:
        """Wait until all connections are closed, once those who dial have closed theirs."""
        await asyncio.gather(*filter(None, self._joined), return_exceptions=True)
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one connection with whom its first lines name."""
        self._joined.append(asyncio.current_task())
        self._writers.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            whom, _, rest = head.decode().removeprefix("GET /").partition(" ")
            port = self.ports.get(whom, self.ports["hub"])
            there, far = await asyncio.open_connection("127.0.0.1", port)
        except (EOFError, OSError):  # it was a look, or the hub does not listen yet
            writer.close()
            return
        self._writers.append(far)
        ends = {whom, rest.partition("Islands-Name: ")[2].split()[0]}
        far.write(head)

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while (data := await source.read(1 << 16)) and not self.away & ends:
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(carry(reader, far), carry(there, writer))


@dataclass(frozen=True, slots=True)
class Played:
    """A run's errors in per cent, and what `AWAY` had read when it left, and when it returned.

    `lines` are all looks of each warehouse: trips read, error on its own trips, error on all.
    """

    mean: float
    left: float
    returned: float
    lines: list[list[list[float]]]

    @property
    def own_values(self) -> float:
        """Error on all trips of each warehouse's own last values, the mean of warehouses."""
        return fmean(each[-1][2] for each in self.lines)

    def look(self, trips: float) -> list[float]:
        """The last look of `AWAY` that is not later than so many trips."""
        return [line for line in self.lines[AWAY] if line[0] <= trips][-1]

    @property
    def trips(self) -> float:
        """Trips that were read in all, with those of which the hub never heard."""
        return sum(each[-1][0] for each in self.lines)


def looks(folder: Path, warehouse: int) -> list[list[float]]:
    """What a warehouse has noted so far."""
    path = folder / f"warehouse-{warehouse}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines] or [[0.0, 0.0, 0.0]]


async def play(
    folder: Path, port: int, options: Iterable[str], trips: int, *, returns: bool
) -> Played:
    """Run the story with real processes, to its end."""
    names = ["hub", *(f"warehouse-{number}" for number in range(routes.WAREHOUSES))]
    roads = Roads({name: port + 1 + at for at, name in enumerate(names)})
    relay = await asyncio.start_server(roads.join, "127.0.0.1", port)
    budget = ("--run.budget_tokens", str(trips * routes.WAREHOUSES))
    steps = ("--run.total_steps", str(trips // routes.Routes().rows))
    processes = routes.start(folder, port + 1, (*budget, *steps, *options), relay=port)
    hub, marks = processes["hub"], list[float]()

    def read(numbers: Iterable[int]) -> float:
        """What these warehouses have read, as a share of their trips."""
        return fmean(looks(folder, number)[-1][0] for number in numbers) / trips

    async def wait_read(numbers: Iterable[int], share: float) -> None:
        while hub.poll() is None and read(numbers) < share:  # noqa: ASYNC110  files tell nobody
            await asyncio.sleep(LOOK_S)
        marks.append(looks(folder, AWAY)[-1][0])

    others = [number for number in range(routes.WAREHOUSES) if number != AWAY]
    try:
        await wait_read([AWAY], LEAVES)
        roads.away.add(names[1 + AWAY])
        await wait_read(others, read(others) + ALONE)
        if returns:
            roads.away.clear()
        await wait_read(others, float("inf"))
    finally:
        relay.close()
        for process in processes.values():
            process.kill()
            process.wait()
        await roads.end()
    if hub.returncode:
        raise SystemExit((folder / "hub.log").read_text())
    lines = [looks(folder, number) for number in range(routes.WAREHOUSES)]
    return Played(routes.error(load(folder)), marks[0], marks[1], lines)


def in_one_place(folder: Path, port: int, seed: int, trips: int, rows: int) -> float:
    """Train on the trips of all warehouses by one learner; return its error."""
    words = ["run", "routes.yaml", "--preset", "data_parallel", "--learners", "1", "--folder"]
    words += [str(folder), "--listen", f"127.0.0.1:{port}", "--run.gossip.neighbours", "nobody"]
    words += ["--task_settings.rows", str(rows), "--run.total_steps", str(trips // rows)]
    words += ["--run.budget_tokens", str(trips), *seeded(seed)]
    command = [sys.executable, "-m", "islands.cli", *words]
    subprocess.run(command, cwd=routes.HERE, check=True, capture_output=True)
    return routes.error(load(folder))


def seeded(seed: int) -> list[str]:
    return ["--run.seed", str(seed), "--task_settings.seed", str(seed)]


def draw(played: Played, one_place: float, path: Path) -> None:
    """Draw the errors of each warehouse's own values over the trips that it had read."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, layout="constrained")
    for axis, column, title in zip(axes, (1, 2), ("its own trips", "trips of all"), strict=True):
        for number, lines in enumerate(played.lines):
            trips, errors = [line[0] for line in lines[2:]], [line[column] for line in lines[2:]]
            away = number == AWAY
            label = f"warehouse {number}" if away else "the others" if not number else None
            colour, wide = ("tab:red", 1.8) if away else ("tab:grey", 0.8)
            axis.plot(trips, errors, color=colour, linewidth=wide, label=label, zorder=2 + away)
        axis.axvspan(played.left, played.returned, alpha=0.15, label=f"warehouse {AWAY} alone")
        axis.set(title=title, xlabel="trips that the warehouse has read", ylim=(15, 26))
    axes[1].axhline(one_place, linestyle="--", color="black", label="in one place, at the end")
    axes[0].set_ylabel("error of its own values in %")
    axes[1].legend()
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--trips", type=int, default=TRIPS, help="of each warehouse")
    parser.add_argument("--for_good", action="store_true", help="who left does not return")
    parser.add_argument("--picture", type=Path, help="PNG of the last seed")
    parser.add_argument("--folder", type=Path, help="for the runs; by default removed at the end")
    parser.add_argument("--port", type=int, default=17070, help="the first of ten free ones")
    chosen, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        compare(chosen, options, (chosen.folder or Path(temporary)).absolute())


def compare(chosen: argparse.Namespace, options: list[str], folder: Path) -> None:
    """Run both for each seed, and print the errors with mean and standard deviation."""
    print(f"{'seed':<6}{'one place':>10}{'mean':>8}{'own':>8}{'worse by %':>12}", end="")
    print(f"{'alone: its own trips':>24}{'all trips':>18}")
    rows: list[tuple[float, ...]] = []
    for seed in map(int, chosen.seeds.split(",")):
        words, returns = [*seeded(seed), *options], not chosen.for_good
        begun = play(folder / f"gossip-{seed}", chosen.port, words, chosen.trips, returns=returns)
        played = asyncio.run(begun)
        alike = folder / f"one-place-{seed}"
        one_place = in_one_place(alike, chosen.port, seed, int(played.trips), ROWS)
        worse = 100 * (played.mean / one_place - 1)
        rows.append((one_place, played.mean, played.own_values, worse))
        print(f"{seed:<6}{in_columns(rows[-1])}", end="")
        before, after = played.look(played.left), played.look(played.returned)
        print(f"{before[1]:>16.2f} → {after[1]:.2f}{before[2]:>10.2f} → {after[2]:.2f}", flush=True)
    if len(rows) > 1:
        print(f"{'mean':<6}{in_columns(map(fmean, zip(*rows, strict=True)))}")
        print(f"{'sd':<6}{in_columns(map(stdev, zip(*rows, strict=True)))}")
    if chosen.picture:
        draw(played, one_place, chosen.picture)


def in_columns(numbers: Iterable[float]) -> str:
    return "".join(f"{x:>{wide}.2f}" for x, wide in zip(numbers, (10, 8, 8, 12), strict=True))


if __name__ == "__main__":
    main()
