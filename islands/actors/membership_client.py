"""The client that performs what the syncer's membership decides, over its link to the supervisor.

Messages about the admission go to the membership state (`membership.py`), all others to the role.
"""

import random
from collections.abc import Callable
from typing import Any

from islands.actors.role_actor import RoleActor
from islands.protocol.errors import OutdatedError
from islands.protocol.membership import HeartbeatContent, MembershipState
from islands.protocol.messages.membership import Evicted, HeartbeatAck, Joined
from messaging.links.link import Lane

BEGUN_ANEW = (
    "the supervisor does not know this process's credential: it has begun the run anew, in another "
    "folder, so this process ends; started again, it goes on under the new beginning"
)


class MembershipClient:
    """Keeps one process a member of its run.

    `sign` returns the content of a heartbeat at this moment; `received` gets every message that is
    not about the admission, and `changed` whether the link is up, when it opens or closes.
    """

    def __init__(
        self,
        actor: RoleActor[Any],
        membership: MembershipState,
        rng: random.Random,
        *,
        sign: Callable[[], HeartbeatContent],
        received: Callable[[object], None],
        changed: Callable[[bool], None],
    ) -> None:
        self.membership = membership
        self._actor = actor
        self._sign = sign
        self._received = received
        self._changed = changed
        self._dialer = actor.dial(
            actor.context.supervisor,
            rng,
            opened=lambda: self._link_changed(up=True),
            received=lambda envelope: self._take(envelope.body),
            closed=lambda: self._link_changed(up=False),
        )

    def beat(self) -> None:
        word = self.membership.say(self._sign(), self._actor.now_s())
        if word is not None:
            self._actor.send(self._dialer.link, word)

    def tell(self, body: object, payload: tuple[memoryview, ...] = ()) -> None:
        """Send a message to the supervisor; it may be lost."""
        self._actor.send(self._dialer.link, body, payload, Lane.BULK if payload else Lane.CONTROL)

    def _link_changed(self, *, up: bool) -> None:
        self.membership.supervisor_up = up
        self.beat()
        self._changed(up)

    def _take(self, body: object) -> None:
        match body:
            case Joined():
                if self.membership.on_joined(body):
                    self.beat()
            case Evicted():
                if self.membership.on_evicted(body) and not body.unknown:
                    self.beat()
                if body.unknown:
                    self._actor.fail("supervisor", OutdatedError(BEGUN_ANEW))
            case HeartbeatAck():
                self.membership.on_ack(body)
            case _:
                self._received(body)
