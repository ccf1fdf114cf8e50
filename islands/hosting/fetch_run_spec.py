"""Fetching the run's spec and plan from a supervisor, which a process needs before it can join."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from islands.errors import RefusedError, UnreachableError
from islands.hosting.one_request import request
from islands.identities import Role
from islands.layout.leaves import Layout
from islands.messages.membership import RunSpecReply, RunSpecRequest
from islands.messages.protocol import PROTOCOL
from islands.settings.run_spec import RunPlan, RunSpec
from messaging.envelope import Envelope
from messaging.errors import DialDenied
from messaging.links.link import Network

PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Requester:
    """The role of the process that asks, and its name in the run."""

    role: Role
    name: str


async def fetch_run_spec(
    network: Network,
    addresses: tuple[str, ...],
    requester: Requester,
    *,
    wait_s: float,
    say: Callable[[str], object],
) -> tuple[RunSpec, RunPlan]:
    """Ask the addresses in turn, again and again, until one answers.

    Args:
        network: dials the addresses.
        addresses: the addresses of the supervisor.
        requester: the role and name to ask with.
        wait_s: how long to go on trying; each address is tried at least once.
        say: told why there is no answer yet, whenever the reason changes.

    Raises:
        RefusedError: the supervisor that answered refuses this process.
        UnreachableError: no supervisor answered in time.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    question, before = RunSpecRequest(PROTOCOL, requester.role, requester.name), ""
    while True:  # until a supervisor answers, or the deadline
        try:
            return await request(network, addresses, requester.name, question, _read)
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


def _read(envelope: Envelope) -> tuple[RunSpec, RunPlan] | None:
    match envelope.body:
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
