"""A hub among many real learners, over websockets on loopback.

    python -m tests.benchmarks.crowd --learners 64 --seconds 20 [--step_s 1.0] [--all] [--kills N]

This process is the hub: supervisor and syncer, journal and run folder. The learners have devices
that only sleep, and live in a few processes of their own, each with its own sockets. Once every
one of them is in a merge, S seconds are measured; then the run is stopped, properly. Without
`--all` a busy machine merges the fastest alone: exchanges take longer than their overlap hides.

With `--kills N`, N of the processes are killed by SIGKILL within those seconds, evenly, with all
their learners at once, and each is started again at once: its learners are evicted or take their
names back, and return as other incarnations.

The last line of output is JSON: `hub_cpu_s_per_s` is the CPU of the whole hub process (all threads)
per second, `hub_cpu_s_per_merge` the same for each merge, `join_cpu_s` and `join_s` what it took
from its start until everybody was in a merge, and `hub_resident_bytes_most` the most memory that it
had. The exit code is 0 if all joined, all contributed within those seconds, merges went on, nobody
was evicted who had not been killed, and all learners ended in order.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from islands.actors.ports import ThreadWorker
from islands.files.tape_writing import MemoryTape
from islands.learner.actor import LearnerActor
from islands.learner.compute_thread import ComputeThread
from islands.model.interfaces import LearnerDevices
from islands.model.workload import load_workload
from islands.protocol.identities import SUPERVISOR, Role
from islands.protocol.settings.run import RunSettings, Timing
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting import process_runtime
from islands.run.hosting.hub_requests import Requester, fetch_run_spec
from islands.run.run_claim import claim_folder
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.settings.run_spec import RunSpec

SLEEPING = "islands.lab.toys.toy_workload:Sleeping"
JOIN_LIMIT_S = 120.0
END_LIMIT_S = 60.0
LOOK_S = 0.1
WAIT_S = 30.0
TAPE_ENTRIES = 1000


class Entry(msgspec.Struct):
    """What is read of the hub's tape."""

    kind: str
    name: str = ""
    role: str = ""
    participants: tuple[str, ...] = ()


class Crowd:
    """What the hub's tape says of the learners; read as it grows.

    Args:
        tape: the file.
    """

    def __init__(self, tape: Path) -> None:
        self._file = tape.open("rb")
        self._rest = b""
        self.joins = 0
        self.evicted: Counter[str] = Counter()
        self.merges = 0
        self.parts: Counter[str] = Counter()

    def read(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            entry = msgspec.json.decode(line, type=Entry)
            self.joins += entry.kind == "admitted" and entry.role == Role.LEARNER.value
            self.evicted.update([entry.name] if entry.kind == "evicted" else [])
            self.merges += entry.kind == "merged"
            self.parts.update(entry.participants)

    def close(self) -> None:
        self._file.close()


# ------------------------------------------------------------------------------------------- hub


def make_hub(chosen: argparse.Namespace, folder: Path) -> Coordinator:
    settings = RunSettings(
        run="crowd",
        interval_steps=chosen.interval,
        fragments=chosen.interval,
        quorum=None if chosen.all else 1,
        timing=Timing(patience=chosen.patience),
    )
    task: dict[str, object] = {"step_s": chosen.step_s, "megabytes": chosen.megabytes}
    spec = RunSpec(settings, SLEEPING, task)
    hub_settings = CoordinatorSettings(
        folder=folder,
        spec=spec,
        listening=ListenOptions(listen="127.0.0.1:0"),
        connecting=ConnectOptions(),
        syncer_here=True,
    )
    return Coordinator(hub_settings, claim_folder(folder, spec, load_workload(spec)), None)


async def measure(chosen: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Run the hub and its learners; returns the figures."""
    hub = make_hub(chosen, folder)
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    await hub.open()
    running = asyncio.create_task(hub.run())
    names = [f"learner-{index:04}" for index in range(chosen.learners)]
    shares = [names[index :: chosen.processes] for index in range(chosen.processes)]
    children = [start(hub.network.url(SUPERVISOR), share) for share in shares]
    crowd = Crowd(folder / "tape.jsonl")
    try:
        await until(crowd, running, lambda: len(crowd.parts) == len(names), JOIN_LIMIT_S)
        joined = {
            "join_s": time.monotonic() - begun_s,
            "join_cpu_s": time.process_time() - begun_cpu_s,
            "contributed_at_first": len(crowd.parts),
        }
        crowd.parts.clear()
        merges, at_s, cpu_s = crowd.merges, time.monotonic(), time.process_time()
        killed: Counter[str] = Counter()
        for number in range(chosen.kills + 1):
            await until(crowd, running, lambda: False, chosen.seconds / (chosen.kills + 1))
            if number < chosen.kills:
                place = number % len(children)
                killed.update(shares[place])
                children[place] = again(children[place], hub.network.url(SUPERVISOR), shares[place])
        lasted_s, used_s = time.monotonic() - at_s, time.process_time() - cpu_s
        merged, parts = crowd.merges - merges, crowd.parts.copy()
        assert hub.syncer is not None, "it lives here"
        mailbox = hub.syncer.mailbox.high_water
        hub.syncer.finish("measured")
        await asyncio.wait([running], timeout=END_LIMIT_S)
        crowd.read()
        ends = [await asyncio.to_thread(child.wait, END_LIMIT_S) for child in children]
    finally:
        for child in children:
            child.kill()
            assert child.stdin is not None, "a pipe"
            child.stdin.close()
        if not running.done():
            await hub.leave("given up")
        await asyncio.gather(running, return_exceptions=True)
        crowd.close()
    return {
        "learners": chosen.learners,
        "processes": chosen.processes,
        "step_s": chosen.step_s,
        "seconds": lasted_s,
        **joined,
        "hub_cpu_s_per_s": used_s / lasted_s,
        "hub_cpu_s_per_merge": used_s / max(1, merged),
        "hub_resident_bytes_most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "killed": killed.total(),
        "joins": crowd.joins,
        "evictions": crowd.evicted.total(),
        "evicted_undisturbed": sorted(crowd.evicted - killed),
        "merges": merged,
        "participation": sum(parts.values()) / max(1, merged) / chosen.learners,
        "contributed": len(parts),
        "fewest_contributions": min(parts.values(), default=0),
        "mailbox_most": mailbox,
        "ends": ends,
    }


async def until(
    crowd: Crowd, running: "asyncio.Task[object]", condition: Callable[[], bool], limit_s: float
) -> None:
    """Look at the tape until something holds, the hub has ended, or the time is over."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s and not running.done():
        await asyncio.sleep(LOOK_S)
        crowd.read()
        if condition():
            return


def start(url: str, names: list[str]) -> subprocess.Popen[bytes]:
    """Start a process of learners; it ends with this one, whatever happens."""
    words = ["-m", "tests.benchmarks.crowd", "--join", url, "--names", ",".join(names)]
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE)


def again(child: subprocess.Popen[bytes], url: str, names: list[str]) -> subprocess.Popen[bytes]:
    """Kill a process of learners, and start another one in its place."""
    child.kill()
    child.wait()
    assert child.stdin is not None, "a pipe"
    child.stdin.close()
    return start(url, names)


# -------------------------------------------------------------------------------------- learners


def end_with_parent() -> None:
    """Its end of the pipe closes when the process that started this one is gone."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


async def learn(url: str, names: list[str]) -> None:
    """Several learners on their own sessions, in this process."""
    connecting = ConnectOptions()
    network = process_runtime.network_of(connecting, token=process_runtime.token_of(connecting))
    try:
        requester = Requester(Role.LEARNER, names[0])
        spec, plan = await fetch_run_spec(network, (url,), requester, wait_s=WAIT_S, say=print)
        workload = load_workload(spec)
        learners: list[LearnerActor] = []
        for name in names:
            context = process_runtime.context_in(
                network, (url,), spec, plan, MemoryTape(TAPE_ENTRIES)
            )
            devices = LearnerDevices(name, "", 1)
            compute = ComputeThread(
                lambda devices=devices: workload.trainer(spec.settings, devices),  # type: ignore[misc]
                spec.settings,
                name,
            )
            worker = ThreadWorker(name, lambda error: sys.exit(repr(error)), finish=False)
            learners.append(
                LearnerActor(name, context, compute, worker, random.Random(os.urandom(8)))
            )

        def leave(reason: str) -> None:
            for learner in learners:
                learner.leave(reason)

        await process_runtime.live(learners, leave)
    finally:
        await network.close()


def main(arguments: list[str]) -> int:
    """Measure and print; the last line is JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.crowd")
    parser.add_argument("--learners", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2, help="in which the learners live")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--step_s", type=float, default=1.0)
    parser.add_argument("--interval", type=int, default=24, help="steps and fragments of a sync")
    parser.add_argument("--megabytes", type=float, default=1.0, help="of the model")
    parser.add_argument("--all", action="store_true", help="a merge waits for all that were asked")
    parser.add_argument("--patience", type=float, default=1.0, help="scales all timeouts")
    parser.add_argument("--kills", type=int, default=0, help="processes to be killed meanwhile")
    parser.add_argument("--join", help="be a process of learners of the hub at this address")
    parser.add_argument("--names", help="of those learners")
    chosen = parser.parse_args(arguments)
    process_runtime.allow_open_files()
    if chosen.join is not None:
        threading.Thread(target=end_with_parent, daemon=True).start()
        asyncio.run(learn(chosen.join, chosen.names.split(",")))
        return 0
    with tempfile.TemporaryDirectory() as place:
        figures = asyncio.run(measure(chosen, Path(place) / "run"))
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    sys.stdout.write(json.dumps(rounded) + "\n")
    everybody = figures["contributed"] == chosen.learners
    everybody = everybody and figures["joins"] == chosen.learners + int(str(figures["killed"]))
    undisturbed = not figures["evicted_undisturbed"] and figures["ends"] == [0] * chosen.processes
    return 0 if everybody and undisturbed and figures["merges"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
