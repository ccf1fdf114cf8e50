"""Requests to a hub from a process that is no member, each over a link of its own.

The first request of most processes is for the run's spec and plan, without which none can join.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from islands.layout.leaves import Layout
from islands.layout.loop_layout import LoopLayout, encode_layout
from islands.protocol.errors import RefusedError, RunOverError, UnreachableError
from islands.protocol.identities import OPERATOR, Role
from islands.protocol.invitations import signed
from islands.protocol.messages import membership
from islands.protocol.messages.control import Command, CommandAnswer, MemberFigures
from islands.protocol.messages.registry import PROTOCOL
from islands.settings.run_spec import RunPlan, RunSpec
from islands.settings.wire_limits import limits_of
from messaging.envelope import Envelope
from messaging.errors import DialDenied, DialFailed, LinkClosed
from messaging.links.link import Lane, Link, Network
from messaging.websocket.network import WebsocketNetwork

ANSWER_S = 10.0
PAUSE_S = 1.0
SIGNED_MAX = 3
"""So often a command is signed: the address may be that of another start of the hub by then."""
NO_LAYOUT = "its run has no layout before the first training loop joins it (islands.join)"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Requester:
    """The role of the process that asks, and its name in the run."""

    role: Role
    name: str


async def fetch_run_spec(
    network: WebsocketNetwork,
    addresses: tuple[str, ...],
    requester: Requester,
    *,
    wait_s: float,
    say: Callable[[str], object],
    layout: Callable[[], LoopLayout] | None = None,
) -> tuple[RunSpec, RunPlan]:
    """Ask the addresses in turn, again and again, until one answers.

    Each address is tried at least once within `wait_s`; `say` hears why there is no answer yet,
    whenever the reason changes. A run that has no layout yet is sent that of the user's own loop;
    without one, another loop has to do that. From then on the network allows messages as large as
    the run's.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    question, before = membership.RunSpecRequest(PROTOCOL, requester.role, requester.name), ""
    while True:  # until a supervisor answers, or the deadline
        try:
            found: tuple[RunSpec, RunPlan] | membership.LayoutWanted = await request(
                network, addresses, requester.name, question, _read
            )
            if not isinstance(found, membership.LayoutWanted):
                network.allow(limits_of(found[1].layout))
                return found
            reason = NO_LAYOUT
            if layout is not None:
                await _send_layout(network, addresses, requester.name, layout())
                reason = "it plans the run by the layout of the first loop that joined"
        except DialDenied as error:
            raise RefusedError(str(error)) from error
        except UnreachableError as error:
            reason = str(error)
        if loop.time() + PAUSE_S > deadline_s:
            raise UnreachableError(f"no supervisor answered within {wait_s:g} s: {reason}")
        if reason != before:
            say(f"waiting for the supervisor: {reason}")
            before = reason
        await asyncio.sleep(PAUSE_S)


async def _send_layout(
    network: Network, addresses: tuple[str, ...], name: str, layout: LoopLayout
) -> None:

    def read(envelope: Envelope) -> bool | None:
        return True if isinstance(envelope.body, membership.LayoutTaken) else None

    message = membership.LayoutTold(PROTOCOL, name)
    await request(network, addresses, name, message, read, encode_layout(layout))


def _read(envelope: Envelope) -> tuple[RunSpec, RunPlan] | membership.LayoutWanted | None:
    match envelope.body:
        case membership.LayoutWanted():
            return envelope.body
        case membership.RunSpecReply(spec=spec) if len(envelope.payload) == 1:
            return RunSpec.decode(spec), RunPlan.decode(envelope.payload[0])
        case _:
            return None


def check_same(mine: Layout, run: Layout) -> None:
    """Refuse if this host's task has another layout than the run."""
    difference = mine.first_difference(run)
    if difference is not None:
        raise RefusedError(
            f"this host would train something else than the run: {difference} "
            "(“here” is this host; install the same task, corpus and Python version)"
        )


async def command(
    network: Network, addresses: tuple[str, ...], wish: Command, secret: str
) -> tuple[CommandAnswer, bytes]:
    """Send a command, signed with an operator's secret over a nonce that the supervisor gives.

    Return its answer, and the run's status as JSON, empty if the hub has none.
    """
    answer, status = await request(network, addresses, OPERATOR, wish, _AnswerReader())
    for _ in range(SIGNED_MAX):
        if not answer.nonce:
            break
        body = signed(wish, answer.nonce, secret)
        answer, status = await request(network, addresses, OPERATOR, body, _AnswerReader())
    return answer, status


class _AnswerReader:
    """Takes the parts of an answer to a command; returns the whole one with the last part."""

    def __init__(self) -> None:
        self._members: list[MemberFigures] = []

    def __call__(self, envelope: Envelope) -> tuple[CommandAnswer, bytes] | None:
        answer = envelope.body
        if not isinstance(answer, CommandAnswer):
            return None
        self._members.extend(answer.members)
        whole = replace(answer, members=tuple(self._members)), b"".join(envelope.payload)
        return None if answer.more else whole


async def request(
    network: Network,
    addresses: tuple[str, ...],
    sender: str,
    body: object,
    read: Callable[[Envelope], Answer | None],
    payload: bytes | None = None,
) -> Answer:
    """Send a message to the addresses in turn until one answers, and return the answer."""
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
            if isinstance(envelope.body, membership.Refused):
                reason = envelope.body.reason
                kind = RunOverError if reason.startswith(membership.RUN_OVER) else RefusedError
                raise kind(f"the supervisor refused: {reason}")
            answer = read(envelope)
            if answer is not None:
                return answer
