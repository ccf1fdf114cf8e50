"""The pace keeps a bottleneck busy and its queue short, and limits nothing where there is none."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from messaging.websocket.congestion_window import (
    CEILING_BYTES,
    FLOOR_BYTES,
    REFRESH_S,
    CongestionWindow,
)

MIB = 1 << 20
ALLOWED_S = 0.1


@dataclass
class Path:
    """A simulated way: a bottleneck with a queue that drops nothing, then a fixed delay.

    Attributes:
        rate: Bytes per second that the bottleneck passes.
        delay_s: Time of an empty path, there and back.
        pace: Of the only sender, which always has more to send.
        back_s: What queues of the other direction add to an echo, at a time.
        clock: What the peer's clock shows at a time of ours.
        delays: Queueing delay that each frame found, and when.
    """

    rate: float
    delay_s: float
    pace: CongestionWindow
    back_s: Callable[[float], float] = lambda _: 0.0
    clock: Callable[[float], float] = lambda now_s: now_s
    now_s: float = 0.0
    free_s: float = 0.0
    passed: int = 0
    delays: list[tuple[float, float]] = field(default_factory=list)
    echoes: deque[tuple[float, int, float]] = field(default_factory=deque)

    def run(self, until_s: float, jitter_s: float = 0.0, rng: random.Random | None = None) -> None:
        while self.now_s < until_s:
            while self.pace.may_send():
                self._send(jitter_s * rng.random() if rng else 0.0)
            if self.pace.mark_due():
                self._mark(0.0)
            assert self.echoes, "the sender waits for an echo that nobody owes"
            arrival_s, number, received_s = self.echoes.popleft()
            self.now_s = max(self.now_s, arrival_s)
            assert self.pace.echoed(number, self.now_s, received_s)

    def _send(self, extra_s: float) -> None:
        size = self.pace.chunk_bytes
        self.delays.append((self.now_s, max(0.0, self.free_s - self.now_s)))
        self.free_s = max(self.free_s, self.now_s) + size / self.rate
        self.passed += size
        self.pace.sent(size)
        if self.pace.mark_due():
            self._mark(extra_s)

    def _mark(self, extra_s: float) -> None:
        number = self.pace.mark(self.now_s)
        received_s = max(self.free_s, self.now_s) + self.delay_s / 2 + extra_s
        arrival_s = received_s + self.delay_s / 2 + self.back_s(received_s)
        last_s = self.echoes[-1][0] if self.echoes else 0.0
        self.echoes.append((max(arrival_s, last_s), number, self.clock(received_s)))

    def worst_delay_s(self, since_s: float) -> float:
        """The longest queueing delay that a frame found since then."""
        return max(delay_s for at_s, delay_s in self.delays if at_s >= since_s)


def megabits(number: float) -> float:
    return number * 1e6 / 8


@pytest.mark.parametrize("rate", [megabits(2), megabits(20), megabits(1000)], ids=str)
@pytest.mark.parametrize("delay_s", [0.0002, 0.02, 0.2], ids=str)
def test_bottleneck_is_kept_busy_and_its_queue_short(rate: float, delay_s: float) -> None:
    path = Path(rate, delay_s, CongestionWindow(ALLOWED_S, 1 << 18))
    path.run(REFRESH_S)
    settled_s = 4.0
    assert path.worst_delay_s(settled_s) < 2 * ALLOWED_S
    assert path.worst_delay_s(0.0) < 6 * ALLOWED_S  # also while it learns
    assert path.passed > 0.8 * rate * path.now_s


def test_way_that_gets_longer_is_learned() -> None:
    path = Path(megabits(20), 0.01, CongestionWindow(ALLOWED_S, 1 << 18))
    path.run(10.0)
    path.delay_s = 0.16
    path.run(10.0 + 2 * REFRESH_S)
    before = path.passed
    path.run(20.0 + 2 * REFRESH_S)
    assert path.passed - before > 0.8 * megabits(20) * 10.0


def test_way_that_gets_narrower_is_relieved_at_once() -> None:
    path = Path(megabits(100), 0.02, CongestionWindow(ALLOWED_S, 1 << 18))
    path.run(5.0)
    path.rate = megabits(10)
    path.run(8.0)
    path.run(30.0)
    assert path.worst_delay_s(8.0) < 2 * ALLOWED_S


def test_without_a_bottleneck_it_limits_nothing() -> None:
    path = Path(4e9, 0.0002, CongestionWindow(ALLOWED_S, 1 << 18))
    path.run(0.05)
    assert path.pace.window > 4 * MIB
    assert path.pace.chunk_bytes == 1 << 18


def test_jitter_costs_little() -> None:
    path = Path(megabits(20), 0.04, CongestionWindow(ALLOWED_S, 1 << 18))
    path.run(60.0, jitter_s=0.02, rng=random.Random(0))
    assert path.worst_delay_s(4.0) < 2 * ALLOWED_S
    assert path.passed > 0.8 * megabits(20) * path.now_s


def test_a_pause_does_not_shrink_what_was_learned_below_need() -> None:
    """One late echo, because a process stood still, is made good within a few round trips."""
    pace = CongestionWindow(ALLOWED_S, 1 << 18)
    path = Path(4e9, 0.0002, pace)
    path.run(0.05)
    path.now_s += 1.0
    path.run(path.now_s + 0.05)
    assert pace.window > 4 * MIB


def test_sender_with_little_to_say_keeps_its_window() -> None:
    pace = CongestionWindow(ALLOWED_S, 1 << 18)
    window = pace.window
    for number in range(1000):
        pace.sent(100)
        if pace.mark_due():
            pace.echoed(pace.mark(number * 1.0), number + 0.001, number + 0.0005)
    assert pace.window == window


def test_window_stays_between_floor_and_ceiling() -> None:
    slow = Path(1000.0, 0.02, CongestionWindow(ALLOWED_S, 1 << 18))
    slow.run(2000.0)
    assert FLOOR_BYTES <= slow.pace.window < 2 * FLOOR_BYTES
    fast = Path(1e15, 1e-5, CongestionWindow(ALLOWED_S, 1 << 18))
    fast.run(0.01)
    assert fast.pace.window == CEILING_BYTES


def test_echoes_of_nothing_are_told() -> None:
    pace = CongestionWindow(ALLOWED_S, 1 << 18)
    assert not pace.echoed(1, 0.0, 0.0)
    pace.sent(5000)
    first = pace.mark(0.0)
    pace.sent(5000)
    second = pace.mark(0.0)
    assert pace.awaits_echo
    assert pace.echoed(second, 0.01, 0.005)
    assert not pace.echoed(first, 0.02, 0.005)
    assert pace.in_flight == 0
    assert not pace.awaits_echo


BACK = {
    "steady": lambda _: 0.3,
    "saw": lambda now_s: 0.2 * (now_s % 1.7) / 1.7,
    "bursts": lambda now_s: 1.0 if now_s % 5.0 < 1.0 else 0.0,
}


@pytest.mark.parametrize("back_s", BACK.values(), ids=BACK)
def test_queues_of_the_other_direction_starve_nobody(back_s: Callable[[float], float]) -> None:
    path = Path(megabits(20), 0.04, CongestionWindow(ALLOWED_S, 1 << 18), back_s)
    path.run(3 * REFRESH_S)
    assert path.worst_delay_s(4.0) < 3 * ALLOWED_S
    assert path.passed > 0.8 * megabits(20) * path.now_s


CLOCKS = {
    "an hour behind": lambda now_s: now_s - 3600.0,
    "an hour ahead": lambda now_s: now_s + 3600.0,
    "200 ppm fast": lambda now_s: now_s * 1.0002,
    "200 ppm slow": lambda now_s: now_s * 0.9998,
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_the_clock_of_the_peer_may_differ(clock: Callable[[float], float]) -> None:
    path = Path(megabits(20), 0.04, CongestionWindow(ALLOWED_S, 1 << 18), clock=clock)
    path.run(15 * REFRESH_S)
    assert path.worst_delay_s(4.0) < 2 * ALLOWED_S
    assert path.passed > 0.9 * megabits(20) * path.now_s


NONSENSE = {
    "stands still": lambda _: 0.0,
    "all there is": lambda _: 1e12,
    "backwards": lambda now_s: 1e6 - now_s,
    "jumps back": lambda now_s: now_s if now_s < 10.0 else now_s - 1e6,
    "jumps ahead": lambda now_s: now_s if now_s < 10.0 else now_s + 1e6,
    "one echo": lambda now_s: 0.0 if 10.0 < now_s < 10.1 else now_s + 1e6,
    "at random": lambda now_s: random.Random(now_s).uniform(0, 1e12),
}


@pytest.mark.parametrize("clock", NONSENSE.values(), ids=NONSENSE)
def test_times_that_are_made_up_stop_nobody(clock: Callable[[float], float]) -> None:
    path = Path(megabits(20), 0.04, CongestionWindow(ALLOWED_S, 1 << 18), clock=clock)
    path.run(5 * REFRESH_S)
    before = path.passed
    path.run(10 * REFRESH_S)
    assert path.passed - before > 0.5 * megabits(20) * 5 * REFRESH_S
    assert FLOOR_BYTES <= path.pace.window <= CEILING_BYTES
