"""What a syncer and a supervisor cost with many learners.

    python -m tests.benchmarks.scale --learners M --seconds S [--budget] [--lost SHARE]

The production actors on the virtual clock over a simulated network, with tiny NumPy arithmetic;
H = P = 24, steps of 1 s with 5 % noise and random phases. Learners join within five seconds; once
all of them step, S seconds are measured. The last line of output is JSON.

Counted is the CPU of the callbacks of the syncer's own tasks and timers (receiving, checking,
merging, journal), as `actors_cpu_s_per_s`, and those of the supervisor's; `actors_cpu_s_per_merge`
is the former for each merge. With `--lost 0.1` a tenth of the learners is killed in the measured
time, one after the other, and each comes back after two seconds, as another incarnation that is
sent the whole model; `actors_returned` of them step again at its end. `resident_bytes_most` is the
most memory that the whole process had, learners included.

Not counted: the learners, the clock, the network. Sockets and codec do not take part
(`tests/integration`, `link.py` measure those). CPU is that of the thread. While the time is
measured the garbage collector is off, as it walks what the learners hold, too, which lies elsewhere
in a real run.
"""

import argparse
import asyncio
import gc
import json
import resource
import sys
import time
from collections import Counter

from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import Costs, LearnerHost, NumpyTrainers, World
from islands.protocol.identities import SUPERVISOR, SYNCER, Phase
from islands.protocol.settings.run import RunSettings
from messaging.simulation.virtual_time import PROCESS, VirtualTimeLoop

BATCH_TOKENS = 100
JOIN_S = 5.0
JOIN_LIMIT_S = 120.0
LOOK_S = 0.25
WORK_S = (5e-5, 2e-4)
"""Virtual seconds of one job of the syncer's worker: what checking a tiny contribution costs."""

BUDGET_MARGIN = 4
"""A budget of so many times the measured tokens: grants are shared, and never end meanwhile."""

AWAY_S = 2.0
"""How long a learner that was killed stays away."""


def settings_for(learners: int, seconds: float, *, budget: bool) -> RunSettings:
    """The run's settings: H = P = 24."""
    tokens = int(BUDGET_MARGIN * learners * BATCH_TOKENS * (seconds + JOIN_S))
    return RunSettings(
        interval_steps=24, fragments=24, seed=1, budget_tokens=tokens if budget else None
    )


class MeteredLoop(VirtualTimeLoop):
    """A virtual clock that counts the CPU of callbacks by whose they are."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu_ns = Counter[str]()

    def _run_once(self) -> None:
        ready = self._ready
        while not self._stopping:  # type: ignore[attr-defined]  # asyncio's own
            self._gather()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.cancelled():
                    context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001  asyncio's own
                    begun_ns = time.thread_time_ns()
                    context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # noqa: SLF001  asyncio's own
                    self.cpu_ns[context.get(PROCESS, "world")] += time.thread_time_ns() - begun_ns
                self._events_at_instant += 1

    def cpu_s(self, name: str) -> float:
        """CPU seconds of a process since the counts were cleared."""
        return self.cpu_ns[name] / 1e9


class MeteredWorld(World):
    """A world that knows whether everybody steps, and kills some who come back."""

    async def lose(self, share: float, seconds: float) -> list[str]:
        """Kill a share of the learners one by one within a time; returns their names."""
        names = sorted(self.hosts)[:: max(1, round(1 / share))] if share else []
        loop, begun_s = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        gap_s = max(0.0, seconds - 2 * AWAY_S) / max(1, len(names))
        for name in names:
            await asyncio.sleep(gap_s)
            await self.kill(name)
            loop.call_later(AWAY_S, self.start, name)
        await asyncio.sleep(begun_s + seconds - loop.time())
        return names

    def steps(self, name: str) -> bool:
        actor = self.learner(name)
        return actor is not None and actor.state.phase is Phase.STEPPING

    @property
    def all_step(self) -> bool:
        return all(self.steps(name) for name in self.hosts)


async def live(
    world: MeteredWorld, loop: MeteredLoop, seconds: float, lost: float, figures: dict[str, object]
) -> None:
    world.start(SUPERVISOR)
    world.start(SYNCER)
    begun_s = loop.time()
    gap_s = JOIN_S / len(world.hosts)
    for name in world.hosts:
        world.start(name)
        await asyncio.sleep(gap_s)
    for _ in range(int(JOIN_LIMIT_S / LOOK_S)):
        if world.all_step:
            break
        await asyncio.sleep(LOOK_S)
    assert world.all_step, "all learners step"
    hub_s = loop.cpu_s(SYNCER) + loop.cpu_s(SUPERVISOR)
    figures |= {"actors_join_cpu_s": hub_s, "actors_join_s": loop.time() - begun_s}
    loop.cpu_ns.clear()
    state = world.syncer_state
    assert state is not None, "the syncer runs"
    merges, parts = state.durable.merges, state.durable.participants_sum
    gc.disable()
    killed = await world.lose(lost, seconds)
    gc.enable()
    merged = state.durable.merges - merges
    most = world.syncer.mailbox.high_water if world.syncer is not None else 0
    figures |= {
        "actors_cpu_s_per_s": loop.cpu_s(SYNCER) / seconds,
        "actors_supervisor_cpu_s_per_s": loop.cpu_s(SUPERVISOR) / seconds,
        "actors_merges": merged,
        "actors_participation": (state.durable.participants_sum - parts)
        / max(1, merged)
        / len(world.hosts),
        "actors_mailbox_most": most,
        "actors_cpu_s_per_merge": loop.cpu_s(SYNCER) / max(1, merged),
        "actors_lost": len(killed),
        "actors_returned": sum(world.steps(name) for name in killed),
        "resident_bytes_most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    await world.kill_all()


def measure_actors(
    learners: int, seconds: float, *, budget: bool, lost: float = 0.0
) -> dict[str, object]:
    settings = settings_for(learners, seconds, budget=budget)
    hosts = {
        f"learner-{index:05d}": LearnerHost(step_s=1.0, noise=0.05, batch_tokens=BATCH_TOKENS)
        for index in range(learners)
    }
    figures: dict[str, object] = {}
    loop = MeteredLoop()
    asyncio.set_event_loop(loop)
    try:
        world = MeteredWorld(
            settings,
            hosts,
            seed=1,
            tape=MemoryTape(limit=1000),
            costs=Costs(work_s=WORK_S),
            trainers=NumpyTrainers(settings, shards=max(64, 8 * learners)),
        )
        loop.run_until_complete(live(world, loop, seconds, lost, figures))
    finally:
        loop.cancel_all_tasks()
        asyncio.set_event_loop(None)
        loop.close()
    return figures


def main(arguments: list[str]) -> int:
    """Measure and print; the last line is JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale")
    parser.add_argument("--learners", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--budget", action="store_true", help="with a token budget")
    parser.add_argument("--lost", type=float, default=0.0, help="share of learners to be killed")
    chosen = parser.parse_args(arguments)
    measure_actors(1, 2.0, budget=False)  # the merge kernel is compiled at its first use
    figures: dict[str, object] = {
        "learners": chosen.learners,
        **measure_actors(chosen.learners, chosen.seconds, budget=chosen.budget, lost=chosen.lost),
    }
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
    sys.stdout.write(json.dumps(rounded) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
