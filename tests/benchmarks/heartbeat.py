"""Do heartbeats pass beside bulk on a slow way? `python -m tests.benchmarks.heartbeat` (as root).

Two processes in two network namespaces, and between them a router that lets through 20 Mbit/s and
queues what is more, for at most 0.1 s or 2 s, as home routers and shapers do. Over one link, 64 MiB
of bulk cross, one way or both, while each side sends a heartbeat every 0.1 s that the other echoes.

Printed are the round trips of heartbeats sent during the transfer, each by its sender's own clock,
and the payload's rate as a share of the cable's. Aim: p99 below 1 s, with a rate near the cable's.
Without pacing (`queue_delay_s=None`) the queue holds whatever TCP puts under way, and that depends
on its congestion control: those that wait for losses (reno here, for namespaces may choose it
anywhere; cubic) fill it, bbr does not.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field

import uvloop

from islands.lab.faults.namespaces import Shape, open_pair, unavailable
from islands.lab.faults.proxy import FaultProxy
from islands.lab.faults.stream_faults import Faults
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Lane, Link
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret
from messaging.websocket.settings import WebsocketSettings

PORT = 7070
PROXY_PORT = 7071
PIECE_BYTES = 1 << 22
BEAT_S = 0.1
IDLE_BEATS = 10
OPEN_LIMIT_S = 20.0
AIM_P99_S = 1.0
LAST_ECHOES_S = 3.0
MEASURED = "measured"
SECRET = "heartbeats-in-a-namespace-of-their-own"  # noqa: S105 (nobody else is in there)


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, to be echoed."""

    number: int


@dataclass(frozen=True, slots=True)
class Echo:
    """The echo of a heartbeat."""

    number: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the bulk."""

    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Done:
    """All bulk has been received, or none was to come: `said` by one side of itself."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured in one run.

    Attributes:
        queue: Of the shaper, in the words of `tc`.
        both_ways: Whether the far side sends bulk too.
        pacing: Whether bulk is paced.
        rate: Of the cable.
        megabytes: Bulk per way.
        congestion: TCP's congestion control; empty: the system's.
        latency_s: Added each way by a proxy before the far side.
        sockets: Bulk sockets per link.
        links: Links that share the cable; each carries its part of the bulk.
        stagger_s: How much later each of them begins; late ones never see the cable idle.
    """

    queue: str
    both_ways: bool
    pacing: bool
    rate: str = "20mbit"
    megabytes: int = 64
    congestion: str = "reno"
    latency_s: float = 0.0
    sockets: int = 1
    links: int = 1
    stagger_s: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What one side saw.

    Attributes:
        idle: Round trips before the bulk, in seconds.
        busy: Round trips of heartbeats sent during the bulk.
        sent_s: How long its own bulk took, until the peer had it; 0: it sent none.
        closed: Why the link ended early; empty if it did not.
    """

    idle: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    sent_s: float = 0.0
    closed: str = ""


class Side:
    """One process: beats, echoes, and maybe bulk."""

    def __init__(
        self, link: Link, case: Case, *, sends: bool, expects: bool, wait_s: float = 0.0
    ) -> None:
        self.outcome = Outcome()
        self._link = link
        self._case = case
        self._sends = sends
        self._expects = expects
        self._wait_s = wait_s
        self._now_s = asyncio.get_running_loop().time
        self._out: dict[int, float] = {}
        self._numbers = 0
        self._began_s = 0.0
        self._own_done = asyncio.Event()
        self._peer_done = asyncio.Event()

    async def run(self, *, closes: bool) -> Outcome:
        """Measure until both sides have got their bulk, and one of them closes the link."""
        if not self._sends:
            self._own_done.set()
        if not self._expects:
            self._peer_done.set()
        async with Scope("side") as scope:
            reader = scope.spawn(self._read(), "read")
            scope.spawn(self._beat(), "beat")
            if closes:
                scope.spawn(self._close_when_done(), "close")
            await reader
        if MEASURED not in (self._link.close_reason or ""):
            self.outcome.closed = self._link.close_reason or "closed"
        return self.outcome

    async def _close_when_done(self) -> None:
        await self._own_done.wait()
        await self._peer_done.wait()
        await asyncio.sleep(LAST_ECHOES_S)
        self._link.close(MEASURED)

    def _send(self, body: object, *payload: memoryview) -> bool:
        self._numbers += 1
        lane = Lane.BULK if payload else Lane.CONTROL
        return self._link.send(Envelope("a", "b", self._numbers, body, payload=payload), lane)

    async def _beat(self) -> None:
        number = 0
        while not (self._own_done.is_set() and self._peer_done.is_set()) or number <= IDLE_BEATS:
            self._out[number] = self._now_s()
            self._send(Beat(number))
            number += 1
            if number == IDLE_BEATS:
                asyncio.get_running_loop().call_later(self._wait_s, self._send_bulk)
            await asyncio.sleep(BEAT_S)

    def _send_bulk(self) -> None:
        if not self._sends:
            return
        self._began_s = self._now_s()
        pieces = self._case.megabytes * (1 << 20) // PIECE_BYTES // self._case.links
        values = memoryview(bytes(PIECE_BYTES))
        for number in range(pieces):
            assert self._send(Piece(number, pieces), values)

    async def _read(self) -> None:
        with suppress(LinkClosed):
            while True:  # until the link is closed
                self._take((await self._link.receive()).body)

    def _take(self, body: object) -> None:
        if isinstance(body, Beat):
            self._send(Echo(body.number))
        elif isinstance(body, Echo):
            took_s = self._now_s() - self._out.pop(body.number)
            early = body.number < IDLE_BEATS
            (self.outcome.idle if early else self.outcome.busy).append(took_s)
        elif isinstance(body, Piece) and body.number == body.of - 1:
            self._send(Done(0.0))
            self._peer_done.set()
        elif isinstance(body, Done):
            self.outcome.sent_s = self._now_s() - self._began_s
            self._own_done.set()


def network_of(case: Case) -> WebsocketNetwork:
    """Make the network of one side."""
    delay_s = WebsocketSettings().queue_delay_s if case.pacing else None
    settings = WebsocketSettings(queue_delay_s=delay_s, bulk_sockets=case.sockets)
    return WebsocketNetwork(
        (Beat, Echo, Piece, Done), settings=settings, secret=Secret(SECRET), report=complain
    )


def complain(sentence: str) -> None:
    """Pass on what a network reports."""
    print(sentence, file=sys.stderr)


async def far_side(case: Case, host: str) -> Outcome:
    """Listen, accept one link, and measure."""
    network = network_of(case)
    await network.open(host, PORT)
    listener = network.listen("hub")
    faults = Faults(latency_s=case.latency_s)
    async with FaultProxy(host, PORT, host=host, port=PROXY_PORT, queue_bytes=1 << 25) as proxy:
        proxy.inject(faults)
        print("ready", flush=True)
        async with asyncio.timeout(OPEN_LIMIT_S):
            links = [await listener.accept() for _ in range(case.links)]
        sides = [Side(link, case, sends=case.both_ways, expects=True) for link in links]
        outcome = together(await asyncio.gather(*(side.run(closes=False) for side in sides)))
        await network.close()
    return outcome


async def near_side(case: Case, host: str) -> Outcome:
    """Dial, and measure."""
    network = network_of(case)
    port = PROXY_PORT if case.latency_s else PORT
    address = f"ws://{host}:{port}/hub"
    links = [await network.dial(address, local=f"near-{n}") for n in range(case.links)]
    sides = [
        Side(link, case, sends=True, expects=case.both_ways, wait_s=number * case.stagger_s)
        for number, link in enumerate(links)
    ]
    outcome = together(await asyncio.gather(*(side.run(closes=True) for side in sides)))
    await network.close()
    return outcome


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Return what all links of one side saw."""
    return Outcome(
        [seconds for outcome in outcomes for seconds in outcome.idle],
        [seconds for outcome in outcomes for seconds in outcome.busy],
        max(outcome.sent_s for outcome in outcomes),
        "; ".join(outcome.closed for outcome in outcomes if outcome.closed),
    )


def measure(case: Case) -> tuple[Outcome, Outcome]:
    """Run one case in namespaces of its own; return what near and far saw."""
    shape = Shape(case.rate, queue=case.queue)
    with open_pair(near=shape, far=shape) as (near, far):
        if case.congestion:
            for namespace in (near, far):
                namespace.congestion_control(case.congestion)
        words = [sys.executable, "-m", "tests.benchmarks.heartbeat", "--case"]
        words += [json.dumps(asdict(case)), "--host", far.address, "--side"]
        limit_s = 60 + case.megabytes * 8 * 4 / rate_mbit(case.rate)
        children = []
        with ExitStack() as stack:
            for namespace, side in ((far, "far"), (near, "near")):
                child = namespace.popen([*words, side], stdout=subprocess.PIPE, text=True)
                stack.callback(child.kill)
                children.append(child)
                assert child.stdout is not None
                if side == "far":
                    assert child.stdout.readline() == "ready\n"
            answers = [child.communicate(timeout=limit_s)[0] for child in reversed(children)]
    near_saw, far_saw = (Outcome(**json.loads(answer)) for answer in answers)
    return near_saw, far_saw


def rate_mbit(rate: str) -> float:
    """Read a rate in megabits per second."""
    return float(rate.removesuffix("mbit"))


def describe(case: Case, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line for each side."""
    for name, outcome in zip(("near", "far"), outcomes, strict=True):
        yield f"  {name:<5} {delays(outcome.busy)}   idle {delays(outcome.idle)}"
        if outcome.sent_s:
            megabits = case.megabytes * (1 << 20) * 8 / 1e6
            share = megabits / outcome.sent_s / rate_mbit(case.rate)
            sent = f"sent {case.megabytes} MiB in {outcome.sent_s:.1f} s"
            yield f"        {sent}: {share:.0%} of the cable"
        if outcome.closed:
            yield f"        link lost: {outcome.closed}"


def delays(seconds: Sequence[float]) -> str:
    """Return p50, p99 and the largest, in milliseconds."""
    if not seconds:
        return "no heartbeat came back"
    ranked = sorted(seconds)
    p50, p99 = (ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in (0.5, 0.99))
    figures = f"p50 {p50 * 1e3:6.0f}  p99 {p99 * 1e3:6.0f}  max {ranked[-1] * 1e3:6.0f} ms"
    return f"{figures} (n={len(ranked)})"


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Say whether the aim was reached."""
    worst = max((sorted(o.busy)[int(0.99 * len(o.busy))] for o in outcomes if o.busy), default=1e9)
    lost = any(outcome.closed for outcome in outcomes)
    return "reached" if worst < AIM_P99_S and not lost else "missed"


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield what is to be measured."""
    choices = {"all": (False, True), "both": (True,), "one": (False,)}
    paces = {"all": (True, False), "on": (True,), "off": (False,)}
    for queue in arguments.queues:
        for both_ways in choices[arguments.ways]:
            for pacing in paces[arguments.pacing]:
                yield Case(
                    queue,
                    both_ways,
                    pacing,
                    arguments.rate,
                    arguments.megabytes,
                    arguments.congestion,
                    arguments.latency_s,
                    arguments.sockets,
                    arguments.links,
                    arguments.stagger_s,
                )


def main() -> None:
    """Measure and print; or be one side of a measurement."""
    parser = argparse.ArgumentParser(description="Heartbeats beside bulk on a slow way.")
    parser.add_argument("--queues", nargs="+", default=["100ms", "2s"])
    parser.add_argument("--ways", choices=["one", "both", "all"], default="all")
    parser.add_argument("--pacing", choices=["on", "off", "all"], default="all")
    parser.add_argument("--rate", default="20mbit", help="of the cable, such as 20mbit")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--congestion", default="reno", help="empty: the system's")
    parser.add_argument("--latency-s", type=float, default=0.0, help="added each way")
    parser.add_argument("--sockets", type=int, default=1, help="bulk sockets")
    parser.add_argument("--links", type=int, default=1, help="links that share the cable")
    parser.add_argument("--stagger-s", type=float, default=0.0, help="between their begins")
    for internal in ("--case", "--host", "--side"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        case = Case(**json.loads(arguments.case))
        side = far_side if arguments.side == "far" else near_side
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(asdict(runner.run(side(case, arguments.host)))))
        return
    if (reason := unavailable()) is not None:
        print(f"skipped: {reason}")
        return
    for case in cases(arguments):
        way = "both ways" if case.both_ways else "one way"
        pacing = "paced" if case.pacing else "not paced"
        words = [case.rate, f"queue {case.queue}", way, pacing, case.congestion or "system's TCP"]
        words += [f"{case.links} links"] * (case.links > 1) + [f"{case.latency_s:g} s away"] * (
            case.latency_s > 0
        )
        print(", ".join(words), flush=True)
        outcomes = measure(case)
        print("\n".join(describe(case, outcomes)))
        print(f"        aim p99 < {AIM_P99_S:g} s: {verdict(outcomes)}", flush=True)


if __name__ == "__main__":
    main()
