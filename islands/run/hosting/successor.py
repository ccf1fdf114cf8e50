"""Whether a standby of this run has become its hub: then this hub's copy of the run is outdated."""

from collections.abc import Mapping

from islands.protocol.errors import RefusedError, RunOverError, UnreachableError
from islands.protocol.identities import OPERATOR, Role
from islands.protocol.messages.membership import RunSpecReply, RunSpecRequest
from islands.protocol.messages.registry import PROTOCOL
from islands.run.hosting.hub_requests import request
from islands.settings.run_spec import RunPlan
from messaging.envelope import Envelope
from messaging.errors import DialDenied
from messaging.links.link import Network


async def refuse_if_succeeded(network: Network, standbys: Mapping[str, str], plan: RunPlan) -> None:
    """Refuse if one of the standbys, at their addresses by name, is a hub of this run now."""

    def read(envelope: Envelope) -> RunPlan | None:
        reply, payload = envelope.body, envelope.payload
        return RunPlan.decode(payload[0]) if isinstance(reply, RunSpecReply) and payload else None

    for name, address in standbys.items():
        question = RunSpecRequest(PROTOCOL, Role.STANDBY, OPERATOR)
        try:
            found = await request(network, (address,), OPERATOR, question, read)
        except (UnreachableError, RefusedError, RunOverError, DialDenied):
            continue  # it follows, or is away, or another process listens there
        if found.begun == plan.begun:
            raise RefusedError(
                f"the run goes on at {address}: the standby {name} was promoted, and this folder "
                "is an older copy; end this hub, and start python -m islands.standby in another "
                "folder if this host is to be the standby now"
            )
