"""One request to a supervisor over a link of its own, from a process that is no member."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from islands.protocol.errors import RefusedError, RunOverError, UnreachableError
from islands.protocol.messages.membership import RUN_OVER, Refused
from messaging.envelope import Envelope
from messaging.errors import DialDenied, DialFailed, LinkClosed
from messaging.links.link import Lane, Link, Network

Answer = TypeVar("Answer")
ANSWER_S = 10.0


async def request(
    network: Network,
    addresses: tuple[str, ...],
    sender: str,
    body: object,
    read: Callable[[Envelope], Answer | None],
    payload: bytes | None = None,
) -> Answer:
    """Send a message to the addresses in turn until one answers, and return the answer.

    Args:
        network: dials the addresses.
        addresses: the addresses of the supervisor; each is tried once.
        sender: name of the process that asks.
        body: the message.
        read: given each envelope that arrives; returns None until the answer is complete.
        payload: bulk bytes that belong to the message, if there are any.

    Raises:
        DialDenied: the supervisor does not accept this process's connection.
        RefusedError: the supervisor refuses the request.
        UnreachableError: no address answered; the sentence says for each of them why.
    """
    failures: list[str] = []
    for address in addresses:
        try:
            link = await network.dial(address, local=sender)
        except DialDenied:
            raise
        except DialFailed as error:
            failures.append(str(error))
            continue
        try:
            if payload is None:
                link.send(Envelope(sender, link.remote, 1, body))
            else:
                bulk = (memoryview(payload),)
                link.send(Envelope(sender, link.remote, 1, body, bulk), Lane.BULK)
            return await _answer(link, read)
        except LinkClosed as error:
            failures.append(f"{address} did not answer: {error}")
        except TimeoutError:
            failures.append(f"{address} did not answer within {ANSWER_S:g} s")
        finally:
            link.close("asked")
    raise UnreachableError("; ".join(failures))


async def _answer(link: Link, read: Callable[[Envelope], Answer | None]) -> Answer:
    async with asyncio.timeout(ANSWER_S):
        while True:  # until the answer is complete, or the timeout
            envelope = await link.receive()
            if isinstance(envelope.body, Refused):
                reason = envelope.body.reason
                kind = RunOverError if reason.startswith(RUN_OVER) else RefusedError
                raise kind(f"the supervisor refused: {reason}")
            answer = read(envelope)
            if answer is not None:
                return answer
