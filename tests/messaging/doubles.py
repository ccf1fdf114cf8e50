"""Doubles that keep the contract, and the rules that every network must keep."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from messaging.codec.frames import Codec, chunk_parts, head_frame
from messaging.envelope import Envelope, message
from messaging.errors import DialFailed, FrameError, LinkClosed, LocalFault
from messaging.links.link import Lane, Link, Network

RULE_TIMEOUT_S = 10.0
_HEADER_MOST = 1000
_MANY = 200
_ENOUGH_TO_FILL = 100_000


def frames_of(
    codec: Codec, envelope: Envelope, chunk_bytes: int, numbers: Iterator[int] | None = None
) -> Iterator[bytes]:
    """Yield an envelope's frames, head and chunks, as one socket would carry them."""
    numbers = itertools.count() if numbers is None else numbers
    yield head_frame(codec.encode(envelope), next(numbers))
    for prefix, data in chunk_parts(envelope, lambda: chunk_bytes, numbers):
        yield b"".join((prefix, data))


def decoded(codec: Codec, document: bytes, payload: tuple[memoryview, ...]) -> Envelope:
    """Decode an envelope as it would arrive, with this payload."""
    envelope, sizes = codec.decode(document)
    if tuple(buffer.nbytes for buffer in payload) != sizes:
        raise FrameError("a payload of other sizes than those announced")
    return replace(envelope, payload=payload)


@message
class Probe:
    """Body of the envelopes that the rules send; register it with the codec under test."""

    number: int
    text: str = ""


LinkRule = Callable[[Network, str], Awaitable[None]]


async def hold_to(rule: LinkRule, network: Network, address: str) -> None:
    async with asyncio.timeout(RULE_TIMEOUT_S):
        await rule(network, address)


def probe(number: int, payload: tuple[memoryview, ...] = ()) -> Envelope:
    return Envelope("near", "far", number, Probe(number, "ü"), payload=payload)


@message
class Spoken:
    """Body of an envelope that carries its bytes itself."""

    data: bytes


def carrying(data: bytes, lane: Lane, number: int) -> Envelope:
    """Make an envelope with these bytes: a payload on the bulk lane, else in its body."""
    if lane is Lane.CONTROL:
        return Envelope("near", "far", number, Spoken(data))
    return probe(number, (memoryview(data),) if data else ())


def beat(link: Link, interval_s: float) -> None:
    """Send a probe every `interval_s`, as long as the link is open."""
    if link.send(probe(0)):
        asyncio.get_running_loop().call_later(interval_s, beat, link, interval_s)


@asynccontextmanager
async def open_session(network: Network, address: str) -> AsyncIterator[tuple[Link, Link]]:
    listener = network.listen(address)
    near = await network.dial(listener.address, local="near")
    far = await listener.accept()
    try:
        yield near, far
    finally:
        near.close("end of the rule")
        far.close("end of the rule")
        listener.close()


async def both_ends_have_names(network: Network, address: str) -> None:
    """Each end knows itself and the other; the accepting end learns the dialler's name."""
    async with open_session(network, address) as (near, far):
        assert near.local == "near"
        assert far.remote == "near"
        assert near.remote == far.local
        assert (near.closed, far.closed) == (False, False)
        assert near.close_reason is None


async def an_address_is_taken_once(network: Network, address: str) -> None:
    listener = network.listen(address)
    with pytest.raises(LocalFault, match="already"):
        network.listen(address)
    listener.close()
    network.listen(address).close()


async def a_link_has_one_reader(network: Network, address: str) -> None:
    async with open_session(network, address) as (_, far):
        reader = asyncio.create_task(far.receive())
        await asyncio.sleep(0)
        with pytest.raises(LocalFault, match="one reader"):
            await far.receive()
        far.close("done")
        with pytest.raises(LinkClosed):
            await reader


async def each_lane_keeps_its_order(network: Network, address: str) -> None:
    async with open_session(network, address) as (near, far):
        for sender, receiver in ((near, far), (far, near)):
            for lane in Lane:
                for start in range(0, _MANY, 20):
                    for number in range(start, start + 20):
                        assert sender.send(probe(number), lane)
                    for number in range(start, start + 20):
                        assert (await receiver.receive()).id == number


async def envelopes_arrive_whole(network: Network, address: str) -> None:
    payload = (memoryview(bytes(range(256)) * 5000), memoryview(b""), memoryview(b"x"))
    sent = Envelope("near", "far", 7, Probe(7, "ü"), payload)
    async with open_session(network, address) as (near, far):
        for lane, one in ((Lane.BULK, sent), (Lane.CONTROL, replace(sent, payload=()))):
            assert near.send(one, lane)
            assert await far.receive() == one


async def bytes_are_counted(network: Network, address: str) -> None:
    """What one end has sent is what the other has received: payloads, headers, and little else."""
    payload = (memoryview(bytes(_HEADER_MOST * 100)),)
    async with open_session(network, address) as (near, far):
        for number in range(_MANY):
            near.send(probe(number))
            await far.receive()
        control = near.bytes_sent
        assert _MANY < control < _MANY * _HEADER_MOST
        assert near.send(probe(_MANY, payload), Lane.BULK)
        await far.receive()
        assert 0 < near.bytes_sent - control - payload[0].nbytes < _HEADER_MOST * 10
        assert abs(near.bytes_sent - far.bytes_received) < _HEADER_MOST  # marks are under way
        assert far.bytes_sent < _HEADER_MOST


async def closing_is_told(network: Network, address: str) -> None:
    """The peer receives what was sent before, then learns that and why the session is over."""
    async with open_session(network, address) as (near, far):
        near.send(probe(1))
        near.close("no more to say")
        near.close("a second reason")
        assert near.closed
        assert near.close_reason == "no more to say"
        assert not near.send(probe(2))
        assert (await far.receive()).id == 1
        with pytest.raises(LinkClosed):
            await far.receive()
        assert far.closed
        assert "no more to say" in (far.close_reason or "")
        assert not far.send(probe(3))


async def closing_ends_a_waiting_reader(network: Network, address: str) -> None:
    async with open_session(network, address) as (near, _):
        asyncio.get_running_loop().call_later(0.01, near.close, "done")
        with pytest.raises(LinkClosed):
            await near.receive()


async def a_cancelled_reader_loses_nothing(network: Network, address: str) -> None:
    async with open_session(network, address) as (near, far):
        try:
            async with asyncio.timeout(0.01):
                await far.receive()
        except TimeoutError:
            near.send(probe(1))
        assert (await far.receive()).id == 1


async def nobody_listens(network: Network, address: str) -> None:
    """Dialling where nobody listens any more fails, and so does accepting there."""
    listener = network.listen(address)
    listener.close()
    with pytest.raises(DialFailed):
        await network.dial(listener.address, local="near")
    with pytest.raises(LinkClosed):
        await listener.accept()


async def sessions_are_apart(network: Network, address: str) -> None:
    """Two sessions of one dialler share nothing: closing one leaves the other alone."""
    async with open_session(network, address) as (near, far):
        listener = network.listen(f"{address}-second")
        second = await network.dial(listener.address, local="near")
        accepted = await listener.accept()
        for link, arrival in ((second, accepted), (near, far)):
            sent = probe(1)
            link.send(sent)
            assert await arrival.receive() == sent
        near.close("done")
        with pytest.raises(LinkClosed):
            await far.receive()
        sent = probe(2)
        assert second.send(sent)
        assert await accepted.receive() == sent
        second.close("done")
        listener.close()


async def full_bulk_is_skipped(network: Network, address: str) -> None:
    """A peer that does not read makes bulk be skipped, not the session end."""
    buffer = (memoryview(bytes(1 << 16)),)
    async with open_session(network, address) as (near, far):
        taken = _count_taken(near, Lane.BULK, buffer)
        assert 0 < taken < _ENOUGH_TO_FILL
        assert not near.closed
        assert near.send(probe(_ENOUGH_TO_FILL))
        ids = [(await far.receive()).id for _ in range(taken + 1)]
        assert sorted(ids) == [*range(taken), _ENOUGH_TO_FILL]
        assert near.send(probe(1, buffer), Lane.BULK)


async def full_control_ends_the_session(network: Network, address: str) -> None:
    async with open_session(network, address) as (near, _):
        assert 0 < _count_taken(near, Lane.CONTROL, ()) < _ENOUGH_TO_FILL
        assert near.closed
        assert "does not read" in (near.close_reason or "")


LINK_RULES: tuple[LinkRule, ...] = (
    both_ends_have_names,
    an_address_is_taken_once,
    a_link_has_one_reader,
    each_lane_keeps_its_order,
    envelopes_arrive_whole,
    bytes_are_counted,
    closing_is_told,
    closing_ends_a_waiting_reader,
    a_cancelled_reader_loses_nothing,
    nobody_listens,
    sessions_are_apart,
    full_bulk_is_skipped,
    full_control_ends_the_session,
)
"""What every network is held to; run each with `hold_to`."""


def _count_taken(link: Link, lane: Lane, payload: tuple[memoryview, ...]) -> int:
    for number in range(_ENOUGH_TO_FILL):
        if not link.send(probe(number, payload), lane):
            return number
    return _ENOUGH_TO_FILL
