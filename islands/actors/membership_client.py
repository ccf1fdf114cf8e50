"""A process that is no learner keeps itself admitted by the supervisor, and shows that it lives.

An admission is kept over links: only its eviction ends it, and then the next one is asked for.
"""

import random
from collections.abc import Callable
from typing import Any

from islands.actors.role_actor import RoleActor
from islands.identities import Incarnation, Phase, Role
from islands.messages.membership import Evicted, Heartbeat, Join, Joined
from islands.messages.protocol import PROTOCOL
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link


class Enrolment:
    """One process's standing with the supervisor.

    Args:
        actor: whose it is.
        role: of the actor.
        rng: jitter of the dialling.
        phase: what its heartbeats say that it does, until `begin`.
        proof: that it holds the run's key, where its role must.
        progress: what its heartbeats tell as its step.
        view: the epoch of the supervisor whose view it holds, and up to which change.
        received: called with whatever the supervisor says that is not about the admission.
        changed: called when the link to the supervisor opens or closes.
    """

    def __init__(
        self,
        actor: RoleActor[Any],
        role: Role,
        rng: random.Random,
        *,
        phase: Phase,
        proof: str,
        progress: Callable[[], int],
        view: Callable[[], tuple[int, int]],
        received: Callable[[object], None],
        changed: Callable[[bool], None],
    ) -> None:
        """Dial the supervisor from now on."""
        self._actor = actor
        self._role = role
        self._address = ""
        self._epoch = 0
        self._phase = phase
        self._proof = proof
        self._progress = progress
        self._view = view
        self._received = received
        self._changed = changed
        self._incarnation: Incarnation | None = None
        self._credential = ""
        self._dialer: Dialer = actor.dial(
            actor.around.supervisor,
            rng,
            opened=self._opened,
            received=lambda envelope: self._take(envelope.body),
            closed=lambda: changed(False),  # noqa: FBT003  a callback's only argument
        )

    @property
    def link(self) -> Link | None:
        """To the supervisor, while it is up."""
        return self._dialer.link

    def begin(self, address: str, epoch: int, phase: Phase) -> None:
        """Do the work from now on; others may dial it.

        Args:
            address: where.
            epoch: of this start.
            phase: what heartbeats say from now on.
        """
        self._address, self._epoch, self._phase = address, epoch, phase
        if self._incarnation is not None:
            self.beat()

    def beat(self) -> None:
        """A heartbeat is due: show that we live, or ask to be admitted."""
        if self._incarnation is None:
            self._join()
            return
        view_epoch, view = self._view()
        beat = Heartbeat(
            role=self._role,
            name=self._actor.name,
            incarnation=self._incarnation,
            phase=self._phase,
            step=self._progress(),
            credential=self._credential,
            epoch=self._epoch,
            address=self._address,
            view_epoch=view_epoch,
            view=view,
        )
        self._actor.send(self.link, beat)

    def tell(self, body: object, payload: tuple[memoryview, ...] = ()) -> None:
        """Say something to the supervisor; it may be lost."""
        self._actor.send(self.link, body, payload, Lane.BULK if payload else Lane.CONTROL)

    def _opened(self) -> None:
        self.beat()
        self._changed(True)  # noqa: FBT003  a callback's only argument

    def _join(self) -> None:
        around = self._actor.around
        join = Join(
            protocol=PROTOCOL,
            run=around.settings.run,
            role=self._role,
            name=self._actor.name,
            fingerprint=around.layout.fingerprint,
            address=self._address,
            proof=self._proof,
        )
        self._actor.send(self.link, join)

    def _take(self, body: object) -> None:
        match body:
            case Joined():
                self._incarnation, self._credential = body.incarnation, body.credential
                self.beat()
            case Evicted(_, incarnation, reason):
                if incarnation == self._incarnation:
                    self._incarnation = None
                    self._join()
                    fields: dict[str, object] = {"name": self._actor.name, "reason": reason}
                    self._actor.record("evicted", fields)
            case _:
                self._received(body)
