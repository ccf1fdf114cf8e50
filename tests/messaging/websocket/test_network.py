"""Links over websockets keep the rules of all links, and what only they promise."""

import asyncio
import random
from collections.abc import AsyncIterator
from operator import attrgetter

import pytest
import uvloop

from messaging.actors.scope import Scope
from messaging.codec.limits import Limits
from messaging.envelope import Envelope
from messaging.errors import EncodeError, LinkClosed, LocalFault
from messaging.links.link import Lane
from messaging.websocket.link import WebsocketLink
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.settings import WebsocketSettings
from tests.messaging.doubles import LINK_RULES, LinkRule, Probe, hold_to, open_session, probe

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

LOOPBACK = "127.0.0.1"


async def opened(settings: WebsocketSettings | None = None) -> WebsocketNetwork:
    network = WebsocketNetwork([Probe], settings=settings)
    await network.open(LOOPBACK, 0)
    return network


@pytest.fixture
async def network() -> AsyncIterator[WebsocketNetwork]:
    network = await opened()
    yield network
    await network.close()


@pytest.mark.parametrize(
    "settings",
    [WebsocketSettings(), WebsocketSettings(chunk_bytes=1 << 10)],
    ids=["default", "small chunks"],
)
@pytest.mark.parametrize("rule", LINK_RULES, ids=attrgetter("__name__"))
async def test_websocket_links_keep_the_rules(rule: LinkRule, settings: WebsocketSettings) -> None:
    network = await opened(settings)
    await hold_to(rule, network, "far")
    await network.close()


@pytest.mark.parametrize("rule", LINK_RULES, ids=attrgetter("__name__"))
def test_rules_hold_on_uvloop(rule: LinkRule) -> None:
    async def main() -> None:
        network = await opened()
        await hold_to(rule, network, "far")
        await network.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_names_of_any_letters_travel() -> None:
    network = await opened()
    listener = network.listen("syncer:a/b ü%")
    near = await network.dial(listener.address, local="lehrling ä:1/2")
    far = await listener.accept()
    assert (near.remote, far.local) == ("syncer:a/b ü%", "syncer:a/b ü%")
    assert far.remote == "lehrling ä:1/2"
    await network.close()


async def test_pure_dialler_needs_no_server(network: WebsocketNetwork) -> None:
    dialler = WebsocketNetwork([Probe])
    with pytest.raises(LocalFault, match="was not opened"):
        dialler.listen("far")
    listener = network.listen("far")
    near = await dialler.dial(listener.address, local="near")
    far = await listener.accept()
    near.send(probe(1))
    assert (await far.receive()).id == 1
    await dialler.close()
    with pytest.raises(LinkClosed, match="closed by near: the process ends"):
        await far.receive()


async def test_closing_the_network_delivers_last_words(network: WebsocketNetwork) -> None:
    other = await opened()
    listener = other.listen("far")
    near = await network.dial(listener.address, local="near")
    far = await listener.accept()
    for number in range(1000):
        assert near.send(probe(number))
    async with Scope() as scope:
        scope.spawn(network.close(), "close")
        assert [(await far.receive()).id for _ in range(1000)] == list(range(1000))
        with pytest.raises(LinkClosed, match="the process ends"):
            await far.receive()
    await other.close()


async def test_long_reason_is_cut_at_a_whole_letter(network: WebsocketNetwork) -> None:
    async with open_session(network, "far") as (near, far):
        near.close("ü" * 500)
        with pytest.raises(LinkClosed, match=r"closed by near: ü{61}$"):
            await far.receive()


async def test_a_link_knows_what_it_has_not_sent_to_its_end(network: WebsocketNetwork) -> None:
    block = memoryview(bytes(1 << 22))
    async with open_session(network, "far") as (near, far):
        assert not near.holds("a")
        for number, topic in ((1, "a"), (2, "b"), (3, None)):
            assert near.send(probe(number, (block,)), Lane.BULK, topic)
        assert near.holds("a")
        assert near.holds("b")
        assert (await far.receive()).id == 1
        assert near.holds("b")
        assert [(await far.receive()).id for _ in range(2)] == [2, 3]
        assert not near.holds("a")
        assert not near.holds("b")


async def test_topics_are_taken_beyond_the_queue() -> None:
    network = await opened(WebsocketSettings(bulk_capacity=2))
    async with open_session(network, "far") as (near, far):
        sent = [near.send(probe(n), Lane.BULK, f"fragment-{n}") for n in range(600)]
        sent += [near.send(probe(n), Lane.BULK) for n in range(600, 603)]
        assert sent == [True] * 602 + [False]
        assert near.send(probe(0), Lane.BULK, "fragment-0")
        assert [(await far.receive()).id for _ in range(602)] == list(range(602))
    await network.close()


async def test_topic_supersedes_what_waits(network: WebsocketNetwork) -> None:
    async with open_session(network, "far") as (near, far):
        for number, topic in ((1, "a"), (2, "b"), (3, "a"), (4, None), (5, "b")):
            assert near.send(probe(number), Lane.BULK, topic)
        assert [(await far.receive()).id for _ in range(3)] == [3, 5, 4]
        assert near.send(probe(6), Lane.BULK, "a")
        assert (await far.receive()).id == 6


async def test_slow_reader_holds_no_more_than_the_bound() -> None:
    size = 1 << 20
    settings = WebsocketSettings(bulk_capacity=8, inbox_bytes=2 * size)
    network = await opened(settings)
    async with open_session(network, "far") as (near, far):
        assert isinstance(far, WebsocketLink)
        taken = 0
        for number in range(50):
            taken += near.send(probe(number, (memoryview(bytes(size)),)), Lane.BULK)
            far.send(probe(number))  # control is not held up
            assert (await near.receive()).id == number
        assert taken < 50
        assert far.unread_bytes <= 4 * size
        ids = [(await far.receive()).id for _ in range(taken)]
        assert ids == sorted(ids)
        assert far.unread_bytes == 0
    await network.close()


async def test_unregistered_body_is_a_mistake_of_the_sender(network: WebsocketNetwork) -> None:
    async with open_session(network, "far") as (near, far):
        with pytest.raises(EncodeError):
            near.send(Envelope("near", "far", 1, object()))
        assert near.send(probe(2))
        assert (await far.receive()).id == 2


async def test_large_payloads_cross_both_ways_at_once(network: WebsocketNetwork) -> None:
    rng = random.Random(0)
    payload = (memoryview(rng.randbytes(9_000_001)), memoryview(rng.randbytes(70_000)))
    async with open_session(network, "far") as (near, far):
        for link in (near, far):
            assert all(link.send(probe(number, payload), Lane.BULK) for number in range(3))
            assert link.send(probe(9))
        for link in (near, far):
            got = {}
            for _ in range(4):
                envelope = await link.receive()
                got[envelope.id] = envelope.payload
            assert got == {9: (), 0: payload, 1: payload, 2: payload}


async def test_chunks_beyond_the_largest_frame_are_refused() -> None:
    """A network whose own frames its peers would refuse cannot be made."""
    with pytest.raises(LocalFault, match="exceed the largest frame"):
        WebsocketNetwork([Probe], limits=Limits(frame_bytes=1 << 16))


async def test_a_network_carries_what_it_is_told_to_allow() -> None:
    small = Limits(payload_bytes=1 << 16, header_bytes=1 << 10)
    large = Limits(frame_bytes=1 << 22, payload_bytes=1 << 20, header_bytes=1 << 21)
    network = WebsocketNetwork([Probe], limits=small)
    await network.open(LOOPBACK, 0)
    fragment, text = memoryview(bytes(1 << 20)), "x" * (1 << 20)
    async with open_session(network, "before") as (near, _):
        with pytest.raises(EncodeError, match="payload of 1048576 bytes; at most 65536"):
            near.send(probe(1, (fragment,)), Lane.BULK)
    network.allow(large)
    async with open_session(network, "after") as (near, far):
        assert near.send(probe(1, (fragment,)), Lane.BULK)
        assert (await far.receive()).payload[0].nbytes == fragment.nbytes
        assert near.send(Envelope("near", "far", 2, Probe(2, text)))
        assert (await far.receive()).body == Probe(2, text)
    await network.close()
