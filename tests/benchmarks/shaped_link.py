"""A real link that loses its bandwidth in the middle of a run.

    python -m tests.benchmarks.shaped_link [--both-ways] [--seconds 20] [--rate 5mbit]

As root. In one network namespace a hub, a syncer and two learners train; a third learner is in
another one, and a router between the two limits what passes: 1 Gbit/s, then 5 Mbit/s, then 1 Gbit/s
again. Steps sleep, merges wait for all (K = all), and the run is played twice, with `precision:
adaptive` and with `float32`. Written per third: steps per second of the learner behind the link and
of another one, merges per second, and the share of them in which it took part; then what it chose,
and when, in seconds since the cut and since its end.
"""

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.integration.namespaces import Namespace, Shape, open_pair, unavailable
from tests.integration.programs import Room, entries, logged

PORT = 7070
GOOD = Shape("1gbit", burst="256kb")
READY_S = 90.0
WARM_S = 5.0
INTERVAL_STEPS, FRAGMENTS, STEP_S, MEGABYTES = 8, 4, 0.05, 2
FAR, NEAR = "local-0", "remote"


def config(precision: str, address: str) -> str:
    return f"""
task: islands.lab.toys.toy_workload:Sleeping
task_settings: {{step_s: {STEP_S}, megabytes: {MEGABYTES}}}
preset: decoupled
run:
  run: shaped
  interval_steps: {INTERVAL_STEPS}
  fragments: {FRAGMENTS}
  quorum: null
  overlap_steps: 2
  precision: {precision}
  budget_tokens: null
listen: {address}:{PORT}
learners: 0
"""


@dataclass(frozen=True, slots=True)
class Third:
    """A part of a run, by the clock of its hub, in seconds."""

    name: str
    from_s: float
    to_s: float


def now_s(folder: Path) -> float:
    """The hub's clock, by the newest thing that it wrote down."""
    return max(float(str(entry["at_s"])) for entry in entries(folder / "metrics.jsonl"))


async def play(
    near: Namespace, far: Namespace, precision: str, seconds: float, cut: Shape, *, both_ways: bool
) -> None:
    with tempfile.TemporaryDirectory() as place:
        here, there = (Path(place) / name for name in ("here", "there"))
        rooms = [
            Room(folder, prefix=("ip", "netns", "exec", namespace.name))
            for folder, namespace in ((here, far), (there, near))
        ]
        for room in rooms:
            room.folder.mkdir()
        (here / "run.yaml").write_text(config(precision, far.address))
        near.shape(GOOD)
        far.shape(GOOD)
        folder = here / "run"
        try:
            hub = rooms[0].start("islands", "run", "run.yaml", "--folder", "run")
            await rooms[0].wait(lambda: "islands join" in hub.err, READY_S)
            for room, name in ((rooms[0], FAR), (rooms[0], "local-1"), (rooms[1], NEAR)):
                hub_at = ("--supervisor", f"ws://{far.address}:{PORT}/supervisor")
                token = ("--token_file", folder / "token")
                room.start("islands.learner", *hub_at, *token, "--name", name)
            await rooms[0].wait(lambda: took_part(folder, 0.0)[1] > FRAGMENTS, READY_S)
            await asyncio.sleep(WARM_S)
            thirds = []
            for name, shape in (("1 Gbit/s", GOOD), ("cut", cut), ("1 Gbit/s again", GOOD)):
                near.shape(shape)
                if both_ways:
                    far.shape(shape)
                from_s = now_s(folder)
                await asyncio.sleep(seconds)
                thirds.append(Third(name, from_s, now_s(folder)))
            stop = await rooms[0].run("islands", "stop", "--folder", "run")
            print(stop.err.strip() or f"{precision}, {'both ways' if both_ways else 'up'}:")
            await rooms[0].ended(hub)
            report(folder, thirds)
        finally:
            for room in rooms:
                room.close()


def took_part(folder: Path, from_s: float, to_s: float = float("inf")) -> tuple[int, int]:
    """How many merges there were, and in how many the learner behind the link took part."""
    merged = [
        entry
        for entry in entries(folder / "tape.jsonl", "merged")
        if from_s <= float(str(entry["at_s"])) < to_s
    ]
    parts = [msgspec.convert(entry["participants"], list[str]) for entry in merged]
    return len(merged), sum(NEAR in names for names in parts)


def steps_per_s(folder: Path, name: str, third: Third) -> float:
    reports = [
        (float(str(entry["at_s"])), int(str(entry["steps"])))
        for entry in entries(folder / "metrics.jsonl", "step")
        if entry["learner"] == name and third.from_s <= float(str(entry["at_s"])) <= third.to_s
    ]
    (first_s, first), (last_s, last) = reports[0], reports[-1]
    return (last - first) / (last_s - first_s)


def report(folder: Path, thirds: list[Third]) -> None:
    print(f"{'link':15} {'its steps/s':>12} {'other':>6} {'merges/s':>9} {'took part':>10}")
    for third in thirds:
        merged, shared = took_part(folder, third.from_s, third.to_s)
        print(
            f"{third.name:15} {steps_per_s(folder, NEAR, third):12.2f} "
            f"{steps_per_s(folder, FAR, third):6.2f} "
            f"{merged / (third.to_s - third.from_s):9.2f} {shared / max(1, merged):10.2f}"
        )
    for entry in (one for one in logged(folder, "adapted") if one["name"] == NEAR):
        at_s = float(str(entry["at_s"]))
        begun = [third for third in thirds if third.from_s <= at_s]
        since = f"{at_s - begun[-1].from_s:.2f} s into {begun[-1].name}" if begun else "before"
        print(f"  {since}: {entry['precision']}: {entry['reason']}")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", default="5mbit")
    parser.add_argument("--both-ways", action="store_true")
    options = parser.parse_args()
    missing = unavailable()
    if missing is not None:
        print(f"skipped: {missing}")
        return
    for precision in ("adaptive", "float32"):
        with open_pair(near=GOOD, far=GOOD) as (near, far):
            cut = Shape(options.rate)
            asyncio.run(
                play(near, far, precision, options.seconds, cut, both_ways=options.both_ways)
            )


if __name__ == "__main__":
    main()
