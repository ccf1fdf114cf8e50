"""The link to the supervisor of a process that is no learner: performs what its membership decides.

What the supervisor says of the admission goes to the state (`membership.py`), the rest to the role.
"""

import random
from collections.abc import Callable
from typing import Any

from islands.actors.membership import HeartbeatContent, MembershipState
from islands.actors.role_actor import RoleActor
from islands.messages.membership import Evicted, HeartbeatAck, Joined
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link


class MembershipClient:
    """Keeps one process a member of its run.

    Args:
        actor: whose membership it is.
        membership: the state that decides.
        rng: jitter of the dialling.
        sign: tells what the process does at this moment.
        received: called with whatever the supervisor says that is not about the admission.
        changed: called when the link to the supervisor opens or closes.
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
        """Dial the supervisor from now on."""
        self.membership = membership
        self._actor = actor
        self._sign = sign
        self._received = received
        self._changed = changed
        self._dialer: Dialer = actor.dial(
            actor.context.supervisor,
            rng,
            opened=lambda: self._link_changed(up=True),
            received=lambda envelope: self._take(envelope.body),
            closed=lambda: self._link_changed(up=False),
        )

    def beat(self) -> None:
        """A heartbeat is due, or says something new: show that we live, or ask to be admitted."""
        word = self.membership.say(self._sign(), self._actor.now_s())
        if word is not None:
            self._actor.send(self._link, word)

    def tell(self, body: object, payload: tuple[memoryview, ...] = ()) -> None:
        """Say something to the supervisor; it may be lost."""
        self._actor.send(self._link, body, payload, Lane.BULK if payload else Lane.CONTROL)

    @property
    def _link(self) -> Link | None:
        return self._dialer.link

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
                if self.membership.on_evicted(body):
                    self.beat()
            case HeartbeatAck():
                self.membership.on_ack(body)
            case _:
                self._received(body)
