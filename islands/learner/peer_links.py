"""Links between learners: each listens, and dials those of its roster to send them something.

A link is used both ways. The dialling learner first sends its name, with the proof that the
supervisor gave to this pair alone; over sockets that stands in place of the run's token, which is
never sent to a learner. Links remain to the neighbours that were met last, and end as one leaves
the roster or comes back as another incarnation. SECURITY.md has the rest.
"""

import hmac
import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from islands.actors.role_actor import LinkAcceptor, RoleActor
from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.messages.gossip import GOSSIP_TYPES, PeerHello
from islands.protocol.messages.membership import Member
from messaging.envelope import Envelope
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link

LINKS_MAX = 32
"""Neighbours to which a learner keeps links of its own; the one met longest ago makes room."""

WAITING_MAX = 64
"""Messages that wait for a link to open; older ones are lost, and asked for again."""

Waiting = tuple[object, tuple[memoryview, ...]]


@dataclass(slots=True)
class _Session:
    """A neighbour that was dialled, and what waits for its link."""

    member: Member
    dialer: Dialer
    waiting: deque[Waiting] = field(default_factory=lambda: deque(maxlen=WAITING_MAX))


class PeerLinks:
    """The links of one learner to others: `known` has those of the roster by name, `listed` all."""

    def __init__(
        self,
        actor: RoleActor[Any],
        rng: random.Random,
        *,
        known: Callable[[str], Member | None],
        listed: Callable[[], Iterable[Member]],
        receive: Callable[[str, Envelope], None],
    ) -> None:
        self._actor = actor
        self._network = actor.context.peers or actor.context.network
        self._keyring = actor.context.keyring
        self._listed = listed
        self._rng = rng
        self._known = known
        self._receive = receive
        self._incarnation: Incarnation | None = None
        self._acceptor: LinkAcceptor | None = None
        self._sessions: dict[str, _Session] = {}
        self._callers: dict[int, Member] = {}
        self._ended = [0, 0]

    def listen(self) -> str:
        actor = self._actor
        listener = self._network.listen(actor.name, guests=True)
        room = actor.mailbox.wait_room
        self._acceptor = LinkAcceptor(
            listener, actor.scope, room=room, receive=self._on_message, lost=self._lost
        )
        return listener.address

    @property
    def bytes_sent(self) -> int:
        return self._ended[0] + sum(one.dialer.bytes_sent for one in self._sessions.values())

    @property
    def bytes_received(self) -> int:
        return self._ended[1] + sum(one.dialer.bytes_received for one in self._sessions.values())

    def follow(self, incarnation: Incarnation | None) -> None:
        """End the links to learners that the roster lacks, or has as another incarnation."""
        anew, self._incarnation = incarnation != self._incarnation, incarnation
        if self._keyring is not None:
            self._keyring.accept(member.proof for member in self._listed())
        for name in list(self._sessions):
            if anew or not _same(self._sessions[name].member, self._known(name)):
                self._end(name, "the roster changed")
        for connection, member in list(self._callers.items()):
            if anew or not _same(member, self._known(member.name)):
                self._drop(connection, "the roster changed")

    def send(self, name: str, message: object, payload: tuple[memoryview, ...] = ()) -> None:
        """Send a message to a learner of the roster, or have it wait for a link; it may be lost."""
        link = self._called_by(name)
        if link is None:
            session = self._session(name)
            if session is None:
                return
            link = session.dialer.link
            if link is None:
                session.waiting.append((message, payload))
                return
        self._say(link, message, payload)

    def close(self) -> None:
        """Accept no more links, and close all; the dialled ones end with the actor's scope."""
        if self._acceptor is not None:
            self._acceptor.close("the learner ended")

    def _say(self, link: Link, message: object, payload: tuple[memoryview, ...]) -> None:
        self._actor.send(link, message, payload, Lane.BULK if payload else Lane.CONTROL)

    # --- links that others opened ---------------------------------------------------------------

    def _called_by(self, name: str) -> Link | None:
        if self._acceptor is None:
            return None
        for connection, member in self._callers.items():
            link = self._acceptor.link(connection)
            if member.name == name and link is not None and not link.closed:
                return link
        return None

    def _on_message(self, connection: int, envelope: Envelope) -> None:
        caller = self._callers.get(connection)
        if isinstance(envelope.body, PeerHello):
            self._on_hello(connection, envelope.body)
        elif caller is None:
            self._drop(connection, "said something before hello")
        elif isinstance(envelope.body, GOSSIP_TYPES):
            self._receive(caller.name, envelope)

    def _on_hello(self, connection: int, hello: PeerHello) -> None:
        member = self._known(hello.name)
        genuine = (
            member is not None
            and member.incarnation == hello.incarnation
            and bool(member.proof)
            and hmac.compare_digest(member.proof.encode(), hello.proof.encode())
        )
        link = None if self._acceptor is None else self._acceptor.link(connection)
        if member is None or not genuine or link is None:
            self._drop(connection, "not known here")
            return
        link.admit()
        self._callers[connection] = member

    def _drop(self, connection: int, reason: str) -> None:
        self._callers.pop(connection, None)
        if self._acceptor is not None:
            self._acceptor.drop(connection, reason)

    def _lost(self, connection: int) -> None:
        self._callers.pop(connection, None)

    # --- links that this learner dials ----------------------------------------------------------

    def _session(self, name: str) -> _Session | None:
        member = self._known(name)
        session = self._sessions.pop(name, None)
        if session is None:
            if member is None or member.address is None or self._incarnation is None:
                return None
            if self._demands_tls and not member.address.startswith("wss://"):
                return None
            if len(self._sessions) >= LINKS_MAX:
                self._end(next(iter(self._sessions)), "others were met since")
            session = _Session(member, self._dial(member))
        self._sessions[name] = session  # the last one was met last
        return session

    @property
    def _demands_tls(self) -> bool:
        hubs = self._actor.context.supervisor
        every = (hubs,) if isinstance(hubs, str) else hubs
        return any(hub.startswith("wss://") for hub in every)

    def _dial(self, member: Member) -> Dialer:
        assert member.address is not None, "who is dialled listens"
        address = member.address
        if self._keyring is not None:
            address = f"{address.rpartition('/')[0]}/{member.name}"  # no two members have the same
            self._keyring.show(address, member.proof, member.host)
        return self._actor.dial(
            address,
            self._rng,
            opened=lambda: self._opened(member),
            received=lambda envelope: self._answered(member, envelope),
            closed=lambda: None,
            settings=replace(self._actor.context.dialling, liveness_s=math.inf),
            network=self._network,
        )

    def _opened(self, member: Member) -> None:
        session = self._sessions.get(member.name)
        link = None if session is None else session.dialer.link
        if session is None or link is None or self._incarnation is None:
            return
        own = LearnerName(self._actor.name)
        self._say(link, PeerHello(own, self._incarnation, session.member.proof), ())
        while session.waiting:
            self._say(link, *session.waiting.popleft())

    def _answered(self, member: Member, envelope: Envelope) -> None:
        if isinstance(envelope.body, GOSSIP_TYPES):
            self._receive(member.name, envelope)

    def _end(self, name: str, reason: str) -> None:
        session = self._sessions.pop(name)
        session.dialer.stop(reason)
        self._ended[0] += session.dialer.bytes_sent
        self._ended[1] += session.dialer.bytes_received


def _same(one: Member, other: Member | None) -> bool:
    """Whether a member is still there, as the same incarnation at the same address."""
    if other is None or other.status.ended:
        return False
    same_address = (one.address, one.host) == (other.address, other.host)
    return same_address and one.incarnation == other.incarnation
