"""Events per second on the virtual clock: `python -m tests.benchmarks.virtual_clock`.

Three measures, each the best of several rounds, next to the least that any such loop must do:

- timers: callbacks that set the next timer (`call_later`), fifty in flight;
- tasks: coroutines that sleep, so each event is a timer, a future and a step of a task;
- queues: pairs of tasks that answer each other over the simulated network, counted per callback;
- heap: a bare `heapq` of (time, number, callable), popped and pushed, without asyncio.
"""

import asyncio
import heapq
import random
import time
from collections.abc import Callable
from itertools import count

from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.links.link import Link
from messaging.simulation.network import Route, SimulatedNetwork
from messaging.simulation.virtual_time import VirtualTimeLoop, run_virtual

EVENTS = 100_000
IN_FLIGHT = 50
ROUNDS = 5
AIM_PER_S = 70_000


def events_so_far() -> int:
    """Return how many callbacks the running virtual loop has run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop.events


async def timers() -> int:
    """Run callbacks that each set the next timer."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = EVENTS

    def tick(delay_s: float) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done.set_result(None)
        loop.call_later(delay_s, tick, delay_s)

    for number in range(IN_FLIGHT):
        tick(0.01 + 0.001 * number)
    await done
    return events_so_far()


async def tasks() -> int:
    """Run tasks that sleep."""

    async def sleeper(number: int) -> None:
        for _ in range(EVENTS // IN_FLIGHT // 2):
            await asyncio.sleep(0.01 + 0.001 * number)

    async with Scope() as scope:
        running = [scope.spawn(sleeper(number), f"{number}") for number in range(IN_FLIGHT)]
        for task in running:
            await task
    return events_so_far()


async def queues() -> int:
    """Run pairs that answer each other over a network with latency and jitter."""
    network = SimulatedNetwork(random.Random(0), Route(jitter_s=0.01))
    listener = network.listen("syncer")

    async def answer(link: Link, times: int) -> None:
        for number in range(times):
            link.send(Envelope("a", "b", number, None))
            await link.receive()

    pairs = 8
    times = EVENTS // pairs // 4
    async with Scope() as scope:
        running = []
        for number in range(pairs):
            near = await network.dial("syncer", local=f"learner-{number}")
            running.append(scope.spawn(answer(near, times), "near"))
            running.append(scope.spawn(answer(await listener.accept(), times), "far"))
        for task in running:
            await task
    return events_so_far()


def bare_heap() -> int:
    """Pop the next entry of a heap, call it, push it back."""
    numbers = count()
    called = 0

    def tick() -> None:
        nonlocal called
        called += 1

    heap = [(0.01 + 0.001 * n, next(numbers), tick) for n in range(IN_FLIGHT)]
    heapq.heapify(heap)
    while called < EVENTS:
        when, _, callback = heapq.heappop(heap)
        callback()
        heapq.heappush(heap, (when + 0.01, next(numbers), callback))
    return called


def best_rate(work: Callable[[], int]) -> float:
    """Return the best number of events per second of several rounds."""
    rates: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        events = work()
        rates.append(events / (time.perf_counter() - start))
    return max(rates)


def main() -> None:
    """Measure and print."""
    heap = best_rate(bare_heap)
    print(f"bare heapq loop          {heap:12,.0f} events/s")
    for main_coroutine in (timers, tasks, queues):
        rate = best_rate(lambda work=main_coroutine: run_virtual(work(), limit_s=1e9))  # type: ignore[misc]
        verdict = "reached" if rate >= AIM_PER_S else "missed"
        print(
            f"virtual clock, {main_coroutine.__name__:<8}  {rate:12,.0f} events/s   "
            f"{rate / heap:.2f} of the bare loop   aim {AIM_PER_S:,}: {verdict}"
        )


if __name__ == "__main__":
    main()
