"""Fetching the run's spec and plan from a supervisor, which a process needs before it can join."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from islands.layout.layout_file import LayoutFile, encode_layout
from islands.layout.leaves import Layout, Leaf
from islands.protocol.errors import RefusedError, UnreachableError
from islands.protocol.identities import Role
from islands.protocol.messages.membership import (
    LayoutTaken,
    LayoutTold,
    LayoutWanted,
    RunSpecReply,
    RunSpecRequest,
)
from islands.protocol.messages.registry import PROTOCOL
from islands.run.hosting.one_request import request
from islands.settings.run_spec import RunPlan, RunSpec
from islands.settings.wire_limits import limits_of
from messaging.envelope import Envelope
from messaging.errors import DialDenied
from messaging.links.link import Network
from messaging.websocket.network import WebsocketNetwork

PAUSE_S = 1.0
NO_LAYOUT = "its run has no layout before the first training loop joins it (islands.join)"


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
    leaves: Callable[[], Sequence[Leaf]] | None = None,
) -> tuple[RunSpec, RunPlan]:
    """Ask the addresses in turn, again and again, until one answers.

    Args:
        network: dials the addresses; from then on it allows messages as large as the run's.
        addresses: the addresses of the supervisor.
        requester: the role and name to ask with.
        wait_s: how long to go on trying; each address is tried at least once.
        say: told why there is no answer yet, whenever the reason changes.
        leaves: returns what the user's own loop trains, to be told to a run that has no layout yet;
            None: a loop has to do that before this process can join.

    Raises:
        RefusedError: the supervisor that answered refuses this process.
        RunOverError: it does so as the run is over.
        UnreachableError: no supervisor answered in time.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    question, before = RunSpecRequest(PROTOCOL, requester.role, requester.name), ""
    while True:  # until a supervisor answers, or the deadline
        try:
            found: tuple[RunSpec, RunPlan] | LayoutWanted = await request(
                network, addresses, requester.name, question, _read
            )
            if not isinstance(found, LayoutWanted):
                network.allow(limits_of(found[1].layout))
                return found
            told = NO_LAYOUT
            if leaves is not None:
                await _tell(network, addresses, requester.name, leaves())
                told = "it plans the run by the layout of the first loop that joined"
        except DialDenied as error:
            raise RefusedError(str(error)) from error
        except UnreachableError as error:
            told = str(error)
        if loop.time() + PAUSE_S > deadline_s:
            raise UnreachableError(f"no supervisor answered within {wait_s:g} s: {told}")
        if told != before:
            say(f"waiting for the supervisor: {told}")
            before = told
        await asyncio.sleep(PAUSE_S)


async def _tell(
    network: Network, addresses: tuple[str, ...], name: str, leaves: Sequence[Leaf]
) -> None:
    """Tell a run that has no layout what this loop trains."""

    def read(envelope: Envelope) -> bool | None:
        return True if isinstance(envelope.body, LayoutTaken) else None

    message = LayoutTold(PROTOCOL, name)
    told = encode_layout(LayoutFile(tuple(leaves)))
    await request(network, addresses, name, message, read, told)


def _read(envelope: Envelope) -> tuple[RunSpec, RunPlan] | LayoutWanted | None:
    match envelope.body:
        case LayoutWanted():
            return envelope.body
        case RunSpecReply(_, spec) if len(envelope.payload) == 1:
            return RunSpec.decode(spec), RunPlan.decode(envelope.payload[0])
        case _:
            return None


def check_same(mine: Layout, run: Layout) -> None:
    """Refuse if this host's task has another layout than the run.

    Raises:
        RefusedError: the layouts differ; the sentence names the first difference.
    """
    difference = mine.first_difference(run)
    if difference is not None:
        raise RefusedError(
            f"this host would train something else than the run: {difference} "
            "(“here” is this host; install the same task, corpus and Python version)"
        )
