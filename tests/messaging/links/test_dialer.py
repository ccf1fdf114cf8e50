"""The dialler keeps one session alive over lost links, and ends when it is told."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from messaging.actors.mailbox import Mailbox
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.dialer import Dialer
from messaging.links.link import Link
from messaging.links.link_state import DialSettings
from messaging.simulation.network import Route, SimulatedNetwork
from tests.messaging.doubles import beat, probe
from tests.virtual import virtual


class Caller:
    """Owner of a dialler that writes down what it is told."""

    def __init__(
        self,
        network: SimulatedNetwork,
        addresses: str | list[str] = "syncer",
        settings: DialSettings | None = None,
        beat_s: float | None = None,
        room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.events: list[str] = []
        self._beat_s = beat_s
        self.dialer = Dialer(
            network,
            addresses,
            local="learner",
            on_open=self._opened,
            on_envelope=self._heard,
            on_close=lambda _, reason: self._note(f"close: {reason}"),
            rng=random.Random(0),
            settings=settings or DialSettings(),
            room=room,
        )

    def _note(self, event: str) -> None:
        self.events.append(event)

    def _opened(self, link: Link) -> None:
        assert self.dialer.link is link
        self._note(f"open: {link.remote}")
        link.send(probe(1))
        if self._beat_s is not None:
            beat(link, self._beat_s)

    def _heard(self, link: Link, envelope: Envelope) -> None:
        self._note(f"envelope {envelope.id}")


async def echo(network: SimulatedNetwork, scope: Scope, address: str = "syncer") -> None:
    """Listen, and send back whatever comes, on every session."""

    async def answer(link: Link) -> None:
        try:
            while True:  # until the link is lost
                link.send(await link.receive())
        except LinkClosed:
            link.close("lost")

    listener = network.listen(address)
    try:
        while True:  # until the listener is closed
            scope.spawn(answer(await listener.accept()), "answer")
    except LinkClosed:
        return


@pytest.fixture
def network() -> SimulatedNetwork:
    return SimulatedNetwork(random.Random(0), Route(keep_tail=1.0))


@virtual
async def test_session_opens_speaks_and_stops(network: SimulatedNetwork) -> None:
    """Open, hello, answer, stop: each callback once, and `run` returns."""
    caller = Caller(network)
    async with Scope() as scope:
        scope.spawn(echo(network, scope), "echo")
        running = scope.spawn(caller.dialer.run(), "dialer")
        await asyncio.sleep(1)
        caller.dialer.stop("enough")
        await running
    assert caller.events == ["open: syncer", "envelope 1", "close: enough"]
    assert caller.dialer.link is None


@virtual
async def test_lost_session_is_dialled_again(network: SimulatedNetwork) -> None:
    caller = Caller(network)
    async with Scope() as scope:
        scope.spawn(echo(network, scope), "echo")
        scope.spawn(caller.dialer.run(), "dialer")
        await asyncio.sleep(10)
        network.crash("syncer")
        await asyncio.sleep(3)
        assert "nobody listens" in (caller.dialer.last_failure or "")
        scope.spawn(echo(network, scope), "echo again")
        await asyncio.sleep(10)
    assert caller.events == [
        *("open: syncer", "envelope 1", "close: closed by syncer: the process died"),
        *("open: syncer", "envelope 1", "close: the dialler ended"),
    ]


@virtual
async def test_silent_peer_is_given_up_and_found_again(network: SimulatedNetwork) -> None:
    caller = Caller(network, settings=DialSettings(liveness_s=3), beat_s=1)
    async with Scope() as scope:
        scope.spawn(echo(network, scope), "echo")
        scope.spawn(caller.dialer.run(), "dialer")
        await asyncio.sleep(20)
        assert "close" not in " ".join(caller.events)
        network.cut("learner", "syncer")
        await asyncio.sleep(20)
        assert caller.events[-1].startswith("close: nothing heard for 3")
        network.heal_all()
        await asyncio.sleep(20)
        assert caller.dialer.link is not None


@virtual
async def test_no_room_here_is_not_the_peers_silence(network: SimulatedNetwork) -> None:
    mailbox: Mailbox[int] = Mailbox(8, room=1)
    mailbox.put_nowait(0)
    settings = DialSettings(liveness_s=3)
    caller = Caller(network, settings=settings, beat_s=1, room=mailbox.wait_room)
    async with Scope() as scope:
        scope.spawn(echo(network, scope), "echo")
        scope.spawn(caller.dialer.run(), "dialer")
        await asyncio.sleep(300)
        assert caller.events == ["open: syncer"]
        await mailbox.get()
        await asyncio.sleep(20)
        assert "close" not in " ".join(caller.events)
        assert caller.events.count("envelope 0") > 300
        network.cut("learner", "syncer")
        await asyncio.sleep(20)
        assert caller.events[-1].startswith("close: nothing heard for 3")


@virtual
async def test_addresses_are_tried_in_turn(network: SimulatedNetwork) -> None:
    caller = Caller(network, ["nowhere", "syncer:second"])
    async with Scope() as scope:
        scope.spawn(echo(network, scope, "syncer:second"), "echo")
        scope.spawn(caller.dialer.run(), "dialer")
        await asyncio.sleep(5)
    assert caller.events[0] == "open: syncer:second"


@pytest.mark.parametrize("moment_s", [0.0, 0.01, 0.02, 0.03, 0.5, 3.0])
@virtual
async def test_stopping_in_any_phase_ends_the_run(
    moment_s: float, network: SimulatedNetwork
) -> None:
    """Whether it dials, waits or is open: `stop` ends it at once and closes what was opened."""
    if moment_s == 3.0:
        network.cut("learner", "syncer")  # it will be dialling in vain
    caller = Caller(network)
    async with Scope() as scope:
        scope.spawn(echo(network, scope), "echo")
        running = scope.spawn(caller.dialer.run(), "dialer")
        await asyncio.sleep(moment_s)
        caller.dialer.stop("enough")
        await running
        assert asyncio.get_running_loop().time() == moment_s
        await asyncio.sleep(5)
    kinds = [event.partition(":")[0] for event in caller.events]
    assert kinds.count("open") == kinds.count("close")


@virtual
async def test_stopped_before_it_runs_never_dials(network: SimulatedNetwork) -> None:
    caller = Caller(network)
    caller.dialer.stop("changed my mind")
    await caller.dialer.run()
    assert caller.events == []


@virtual
async def test_exception_in_a_callback_is_raised(network: SimulatedNetwork) -> None:
    links: list[Link] = []

    def fail(link: Link) -> None:
        links.append(link)
        raise KeyError("mistake")

    dialer = Dialer(
        network,
        "syncer",
        local="learner",
        on_open=fail,
        on_envelope=lambda *_: None,
        on_close=lambda *_: None,
        rng=random.Random(0),
    )
    network.listen("syncer")
    with pytest.raises(KeyError, match="mistake"):
        await dialer.run()
    assert links[0].closed
