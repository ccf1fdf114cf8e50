"""A request of who is no member: whoever can be reached is asked, once each, and it ends."""

import asyncio

import pytest

from islands.protocol import errors
from islands.protocol.messages.membership import RUN_OVER, Refused
from islands.run.hosting.hub_requests import ANSWER_S, request
from messaging.envelope import Envelope
from messaging.errors import LinkClosed
from messaging.links.link import Listener
from messaging.links.memory_link import MemoryNetwork
from messaging.simulation.virtual_time import run_virtual
from tests.messaging.doubles import Probe


def number_of(envelope: Envelope) -> int | None:
    """The answer: what is above 1."""
    body = envelope.body
    return body.number if isinstance(body, Probe) and body.number > 1 else None


async def answer(listener: Listener, *bodies: object) -> None:
    link = await listener.accept()
    assert (await link.receive()).body == Probe(0)
    for number, body in enumerate(bodies):
        link.send(Envelope("far", "near", number, body))
    with pytest.raises(LinkClosed):
        await link.receive()


def asked(*bodies: object) -> tuple[int, float]:
    """What the second of two addresses answered, of which the first is nobody's; when."""

    async def main() -> tuple[int, float]:
        network = MemoryNetwork()
        answering = asyncio.create_task(answer(network.listen("b"), *bodies))
        try:
            found = await request(network, ("a", "b"), "near", Probe(0), number_of)
        finally:
            await answering
        return found, asyncio.get_running_loop().time()

    return run_virtual(main(), limit_s=100)


def test_the_first_that_can_be_reached_is_asked() -> None:
    assert asked(Probe(1), Probe(7)) == (7, 0.0)


def test_a_refusal_is_the_answer() -> None:
    with pytest.raises(errors.RefusedError, match="the supervisor refused: not you"):
        asked(Refused("run", "not you", retry=False))


def test_the_end_of_a_run_is_a_refusal_that_leaves_nothing_to_do() -> None:
    with pytest.raises(errors.RunOverError) as raised:
        asked(Refused("run", f"{RUN_OVER}: tokens", retry=False))
    assert errors.exit_code_of(raised.value) == errors.DONE
    assert errors.exit_code_of(errors.RefusedError("not you")) == errors.OF_NO_USE


def test_who_says_nothing_is_waited_for_no_longer_than_the_limit() -> None:
    with pytest.raises(
        errors.UnreachableError, match=rf"a.*; b did not answer within {ANSWER_S:g} s"
    ):
        asked()


def test_who_closes_instead_is_told_in_a_sentence() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        listener = network.listen("b")

        async def close() -> None:
            (await listener.accept()).close("going down")

        closing = asyncio.create_task(close())
        with pytest.raises(errors.UnreachableError, match=r"b did not answer: .*going down"):
            await request(network, ("a", "b"), "near", Probe(0), number_of)
        await closing

    run_virtual(main(), limit_s=100)
