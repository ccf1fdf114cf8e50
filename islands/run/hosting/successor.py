"""Whether a standby of this run has become its hub: then this hub's copy of the run is outdated."""

import asyncio
from collections.abc import Mapping

from islands.protocol.errors import RefusedError, RunOverError, UnreachableError
from islands.protocol.identities import OPERATOR, Role
from islands.protocol.membership import Credentials
from islands.protocol.messages.membership import RunSpecReply, RunSpecRequest
from islands.protocol.messages.registry import PROTOCOL
from islands.run.hosting.hub_requests import request
from messaging.envelope import Envelope
from messaging.errors import DialDenied
from messaging.links.link import Network


async def refuse_if_succeeded(
    network: Network, standbys: Mapping[str, str], credentials: Credentials, epoch: int
) -> None:
    """Refuse if one of the standbys, at their addresses by name, is a hub of this run now.

    It proves a supervisor's epoch above this one's; so nobody else at such an address counts.
    """

    def read(envelope: Envelope) -> RunSpecReply | None:
        return envelope.body if isinstance(envelope.body, RunSpecReply) else None

    async def ask(name: str, address: str) -> None:
        question = RunSpecRequest(PROTOCOL, Role.STANDBY, OPERATOR)
        try:
            found = await request(network, (address,), OPERATOR, question, read)
        except (UnreachableError, RefusedError, RunOverError, DialDenied):
            return  # it follows, or is away, or another process listens there
        newer, proof = found.supervisor_epoch, found.supervisor_proof
        if newer > epoch and credentials.supervisor_proven(newer, proof):
            raise RefusedError(
                f"the run goes on at {address}: the standby {name} was promoted, and this folder "
                "is an older copy; end this hub, and start python -m islands.standby in another "
                "folder if this host is to be the standby now"
            )

    await asyncio.gather(*(ask(name, address) for name, address in standbys.items()))
