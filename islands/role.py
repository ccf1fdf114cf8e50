"""What the actors of all roles share: where they live, and how they send and record."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from islands.config import RunSettings
from islands.errors import InvariantError
from islands.layout import Layout
from islands.tape import Tape
from messaging.actor import Actor
from messaging.envelope import Envelope
from messaging.link import Lane, Link, Network
from messaging.link_state import DialSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an actor finds around it.

    Args:
        settings: of the run.
        layout: of the model.
        network: how to reach others.
        tape: where decisions are recorded.
        supervisor: address of the supervisor.
        origin_s: the loop's time at which the run began; tape times count from here.
    """

    settings: RunSettings
    layout: Layout
    network: Network
    tape: Tape
    supervisor: str = "supervisor"
    origin_s: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def dialling(self) -> DialSettings:
        """Back-off and liveness of all sessions, scaled by the patience of the run."""
        timing = self.settings.timing
        return DialSettings(
            backoff_first_s=timing.scaled(0.1),
            backoff_longest_s=timing.scaled(5.0),
            dial_timeout_s=timing.scaled(5.0),
            stable_s=timing.scaled(5.0),
            liveness_s=timing.scaled(timing.suspect_s),
        )


class RoleActor(Actor[T]):
    """An actor that performs the actions of a pure state."""

    def __init__(self, name: str, around: Surroundings) -> None:
        """Prepare; `run` begins."""
        super().__init__(name)
        self.around = around
        self._envelopes = 0

    def now_s(self) -> float:
        """The loop's time: real or virtual."""
        return asyncio.get_running_loop().time()

    def post(self, event: T) -> None:
        """Put an event into the own mailbox.

        Raises:
            InvariantError: the mailbox is full; the actor does not keep up.
        """
        if not self.ref.tell(event) and not self.ref.stopped:
            raise InvariantError(f"the mailbox of {self.name} is full: it does not keep up")

    def record(self, kind: str, fields: dict[str, object]) -> None:
        """Write one entry to the tape."""
        self.around.tape.write(self.now_s() - self.around.origin_s, self.name, kind, fields)

    def send(
        self,
        link: Link | None,
        body: object,
        payload: tuple[memoryview, ...] = (),
        lane: Lane = Lane.CONTROL,
    ) -> bool:
        """Send a message; False if the link is down or skipped it, which the state will notice."""
        if link is None or link.closed:
            return False
        self._envelopes += 1
        envelope = Envelope(self.name, link.remote, self._envelopes, body, payload=payload)
        return link.send(envelope, lane)
