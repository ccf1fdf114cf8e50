"""What the actors of all roles share: where they live, and how they send and record."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from islands.errors import InvariantError, IslandsError
from islands.layout.leaves import Layout
from islands.messages.control import Note
from islands.messages.training import FragmentUpdate
from islands.settings.run import RunSettings
from islands.tape.entry import Entry, Notable
from islands.tape.entry_limit import CAUSED_BY_PEERS, EntryLimit
from islands.tape.process_entries import Failed, Unsendable
from islands.tape.writing import Tape
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
"""Values of a list in a note: one of a thousand learners would fit no frame."""

NOTES_KEPT = 1024
"""Notable entries that wait for the supervisor; older ones are only on the own tape."""


@dataclass(frozen=True, slots=True)
class Context:
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

    def __init__(self, name: str, context: Context) -> None:
        """Prepare; `run` begins."""
        super().__init__(name, capacity=EVENTS_MAX, room=ROOM)
        self.context = context
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
            detail = error.detail if isinstance(error, IslandsError) else None
            self.record(Failed(repr(error), detail or None))
        finally:
            await self.kill()

    def leave(self, reason: str) -> None:
        """End in order."""
        self.ref.stop(reason)

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
            self.context.network,
            address,
            local=self.name,
            on_open=lambda _: self._opened(dialer, opened),
            on_envelope=lambda _, envelope: received(envelope),
            on_close=lambda _, __: closed(),
            rng=rng,
            settings=self.context.dialling,
            room=self.mailbox.wait_room,
        )
        if address == self.context.supervisor:
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

    def record(self, entry: Entry) -> None:
        """Write one entry to the tape; what a peer said in it is shown as one line, and cut."""
        entry = plainly(entry)
        if isinstance(entry, CAUSED_BY_PEERS):
            before = self._limit.left_out(self.now_s())
            if before is None:
                return
            entry = replace(entry, left_out=before) if before else entry
        self.context.tape.write(self.now_s() - self.context.origin_s, self.name, entry)
        if self.context.reports and isinstance(entry, Notable):
            self._notes.append(Note(entry.kind, msgspec.json.encode(noted(entry)).decode()))
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
                self.record(Unsendable(str(error)))
            raise


def plainly(entry: Entry) -> Entry:
    """An entry whose texts are lines of bounded length; nearly always it is so already."""
    changed: dict[str, str] = {}
    for name in entry.__struct_fields__:
        told = getattr(entry, name)
        if type(told) is str and (shown := plain(told)) is not told:
            changed[name] = shown
    return replace(entry, **changed) if changed else entry


def noted(entry: Entry) -> Entry:
    """What a note says of an entry of the tape: of long lists only their beginning."""
    cut: dict[str, object] = {}
    for name in entry.__struct_fields__:
        value = getattr(entry, name)
        if isinstance(value, list) and len(value) > NOTED_MAX:
            cut[name] = value[:NOTED_MAX]
        elif isinstance(value, dict) and len(value) > NOTED_MAX:
            cut[name] = dict(islice(value.items(), NOTED_MAX))
    return replace(entry, **cut) if cut else entry


def published_value(
    layout: Layout, update: FragmentUpdate, payload: tuple[memoryview, ...]
) -> memoryview | None:
    """The value that came with an update, flat float32; None if the layout has no such fragment."""
    if not 0 <= update.fragment < len(layout.fragments) or len(payload) != 1:
        return None
    if payload[0].nbytes != 4 * layout.fragments[update.fragment].size:
        return None
    return payload[0]
