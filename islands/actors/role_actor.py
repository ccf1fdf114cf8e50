"""What the actors of all roles share: where they live, and how they send and record."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.actors.entry_limit import CAUSED_BY_PEERS, EntryLimit
from islands.actors.tape import NOTABLE, Tape
from islands.errors import InvariantError, IslandsError
from islands.layout.leaves import Layout
from islands.messages.control import Note
from islands.messages.training import FragmentUpdate
from islands.settings.run import RunSettings
from messaging.actors.actor import Actor
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.errors import EncodeError
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link, Network
from messaging.links.link_state import DialSettings
from messaging.plain_text import plain

T = TypeVar("T")

EVENTS_MAX = 1 << 20
"""Own events that may wait. There are a few for each peer: ends of its links, results of workers,
timers. So many are a mistake of this program."""

ROOM = 256
"""Events that wait before links are read no further; each of their readers has its turn."""

NOTED_MAX = 64
"""Entries of a list in a note: one of a thousand learners would fit no frame."""

NOTES_KEPT = 1024
"""Notable entries that wait for the supervisor; older ones are only on the own tape."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an actor finds around it.

    Args:
        settings: of the run.
        layout: of the model.
        network: how to reach others.
        tape: where decisions are recorded.
        supervisor: address of the supervisor, or several that are tried in turn.
        origin_s: the loop's time at which the run began; tape times count from here.
        reports: whether the supervisor is in another process, and is to be told what its run
            folder keeps: notable entries of the tape, and figures of steps.
    """

    settings: RunSettings
    layout: Layout
    network: Network
    tape: Tape
    supervisor: str | tuple[str, ...] = "supervisor"
    origin_s: float = 0.0
    reports: bool = False

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
    """An actor that performs the actions of a pure state.

    It ends in one way, whether it was stopped, failed or killed: `release` frees what is no task,
    then the scope ends the tasks. A failure is raised from `run`.
    """

    def __init__(self, name: str, around: Surroundings) -> None:
        """Prepare; `run` begins."""
        super().__init__(name, capacity=EVENTS_MAX, room=ROOM)
        self.around = around
        self.scope = Scope(name, self.fail)
        self._failure: BaseException | None = None
        self._envelopes = 0
        self._to_supervisor: Dialer | None = None
        self._notes: deque[Note] = deque(maxlen=NOTES_KEPT)
        self._limit = EntryLimit()

    async def on_stop(self, reason: str) -> None:
        """End what was started; a failure of a part is raised from `run`."""
        await self.kill()
        if self._failure is not None:
            raise self._failure

    async def on_failure(self, error: BaseException) -> None:
        """End what was started; the error is raised from `run`."""
        try:
            fields: dict[str, object] = {"error": repr(error)}
            if isinstance(error, IslandsError) and error.detail:
                fields["detail"] = error.detail
            self.record("failed", fields)
        finally:
            await self.kill()

    async def kill(self) -> None:
        """Die as a process dies: nothing is said to anybody."""
        self.release()
        await self.scope.close()

    def release(self) -> None:
        """Free threads, listeners and links; what is a task ends with the scope."""

    def fail(self, part: str, error: BaseException) -> None:
        """A part of this actor failed, so it ends."""
        self._failure = error
        self.ref.stop(f"{part} failed: {error!r}")

    def dial(
        self,
        address: str | tuple[str, ...],
        rng: random.Random,
        *,
        opened: Callable[[], None],
        received: Callable[[Envelope], None],
        closed: Callable[[], None],
    ) -> Dialer:
        """Keep a session with whoever listens at an address, until the actor ends."""
        dialer = Dialer(
            self.around.network,
            address,
            local=self.name,
            on_open=lambda _: self._opened(dialer, opened),
            on_envelope=lambda _, envelope: received(envelope),
            on_close=lambda _, __: closed(),
            rng=rng,
            settings=self.around.dialling,
            room=self.mailbox.wait_room,
        )
        if address == self.around.supervisor:
            self._to_supervisor = dialer
        self.scope.spawn(dialer.run(), str(address))
        return dialer

    def _opened(self, dialer: Dialer, tell: Callable[[], None]) -> None:
        tell()
        if dialer is self._to_supervisor:
            self._send_notes()

    def now_s(self) -> float:
        """The loop's time: real or virtual."""
        return asyncio.get_running_loop().time()

    def post(self, event: T) -> None:
        """Put an event into the own mailbox, at once.

        Whoever reads a link waits for room before; what else there is has a bound of its own.
        """
        if not self.ref.tell(event) and not self.ref.stopped:
            self.fail("mailbox", InvariantError(f"{self.name} does not keep up with its mailbox"))

    def record(self, kind: str, fields: dict[str, object]) -> None:
        """Write one entry to the tape; what a peer said in it is shown as one line, and cut."""
        fields = {
            key: plain(told) if isinstance(told, str) else told for key, told in fields.items()
        }
        if kind in CAUSED_BY_PEERS:
            before = self._limit.left_out(self.now_s())
            if before is None:
                return
            fields |= {"left_out": before} if before else {}
        self.around.tape.write(self.now_s() - self.around.origin_s, self.name, kind, fields)
        if self.around.reports and kind in NOTABLE:
            self._notes.append(Note(kind, msgspec.json.encode(noted(fields)).decode()))
            self._send_notes()

    def _send_notes(self) -> None:
        """What the run's folder keeps too; it waits here while the supervisor is away."""
        link = None if self._to_supervisor is None else self._to_supervisor.link
        while self._notes and self.send(link, self._notes[0]):
            self._notes.popleft()

    def send(
        self,
        link: Link | None,
        body: object,
        payload: tuple[memoryview, ...] = (),
        lane: Lane = Lane.CONTROL,
        *,
        recipient: str | None = None,
        topic: str | None = None,
    ) -> bool:
        """Send a message; False if the link is down or skipped it, which the state will notice.

        Args:
            link: to whom.
            body: the message.
            payload: bulk bytes.
            lane: bulk for whatever has a payload.
            recipient: a peer to whom the one at the other end passes it on; None: itself.
            topic: a newer one of the same topic replaces it while it waits; see `Link.send`.

        Raises:
            EncodeError: it cannot be put on a wire, whatever the link: this process ends.
        """
        if link is None or link.closed:
            return False
        self._envelopes += 1
        to = link.remote if recipient is None else recipient
        envelope = Envelope(self.name, to, self._envelopes, body, payload=payload)
        try:
            return link.send(envelope, lane, topic)
        except EncodeError as error:  # it would fail again: the run's folder hears why this ends
            if not isinstance(body, Note):
                self.record("unsendable", {"error": str(error)})
            raise


def noted(fields: dict[str, object]) -> dict[str, object]:
    """What a note says of an entry of the tape: all of it but long lists, which the tape has."""
    return {
        name: value
        for name, value in fields.items()
        if not isinstance(value, list | tuple | dict) or len(value) <= NOTED_MAX
    }


def published_value(
    layout: Layout, update: FragmentUpdate, payload: tuple[memoryview, ...]
) -> NDArray[np.float32] | None:
    """The value that came with an update, by the receiver's own layout; None if it cannot be."""
    if not 0 <= update.fragment < len(layout.fragments) or len(payload) != 1:
        return None
    if payload[0].nbytes != 4 * layout.fragments[update.fragment].size:
        return None
    return np.frombuffer(payload[0], np.float32)
