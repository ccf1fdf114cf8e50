"""The standby's actor: it keeps a copy of a run's journal on this host, and may go on with it."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from islands.actors.ports import Worker
from islands.actors.role_actor import Context, MemberActor, ignored
from islands.files.disk import Disk
from islands.files.slots import Slots
from islands.files.tensor_files import HEADER_BYTES_MAX
from islands.keeping import standby_state as standby
from islands.layout.leaves import VALUE_BYTES, Layout
from islands.protocol import sessions
from islands.protocol.errors import DiskError, IslandsError
from islands.protocol.identities import LearnerName, Role
from islands.protocol.membership import Credentials, MembershipState
from islands.protocol.tape import process_entries
from islands.syncer.journal import DISK_RETRY_S, METADATA, fragment_names
from islands.syncer.workers import attempt
from messaging.envelope import Envelope
from messaging.links.dialer import Dialer

ARRAYS_MAX = 8
"""Most arrays of a fragment's size in a record: its value, and an outer optimizer's state."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of one standby into its host.

    Args:
        asked: returns whether an operator wants it to take over.
        answer: gets the reason why it does not.
        spec: gets the run's spec and plan as JSON; an error of ours ends the standby.
        revoked: gets all revocations of invitations.
    """

    asked: Callable[[], bool] = bool
    answer: Callable[[str], object] = ignored
    spec: Callable[[str, bytes], object] = ignored
    revoked: Callable[[dict[str, int]], object] = ignored


class StandbyActor(MemberActor[standby.Event]):
    """One start of a standby, which closes its disk and its worker as it ends.

    `address` is where it would listen. `promoted` is what it goes on as, if it does.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        *,
        disk: Disk,
        worker: Worker,
        credentials: Credentials,
        address: str,
        after_s: float | None,
        rng: random.Random,
        hooks: Hooks | None = None,
    ) -> None:
        super().__init__(name, context)
        self.promoted: str | None = None
        self._disk, self._slots = disk, Slots(disk)
        self._worker = worker
        self._rng = rng
        self._hooks = hooks or Hooks()
        self._stores: deque[standby.Store] = deque()
        layout = context.layout
        self.state = standby.StandbyState(
            MembershipState(
                context.settings.run,
                Role.STANDBY,
                LearnerName(name),
                layout.fingerprint,
                proof=credentials.prove(name),
            ),
            address=address,
            held={},
            file_bytes=file_bytes_max(layout),
            after_s=after_s,
        )

    async def on_start(self) -> None:
        self.state.held = held_on(self._slots, self.context.layout)
        self.dial(
            self.context.supervisor,
            self._rng,
            opened=lambda: self.post(sessions.SupervisorLinkChanged(up=True)),
            received=self._receive,
            closed=lambda: self.post(sessions.SupervisorLinkChanged(up=False)),
        )
        self._tick_later()

    async def on_message(self, message: standby.Event) -> None:
        if isinstance(message, standby.Ticked):
            self._tick_later()
        for action in self.state.handle(message, now_s=self.now_s()):
            self._perform(action)

    def release(self) -> None:
        self._worker.close()
        self._disk.close()

    def _tick_later(self) -> None:
        timing, loop = self.context.settings.timing, asyncio.get_running_loop()
        loop.call_later(timing.scaled(timing.heartbeat_s), self._tick)

    def _tick(self) -> None:
        if not self.ref.stopped:
            self.post(standby.Ticked(self._hooks.asked()))

    def _perform(self, action: standby.Action) -> None:
        match action:
            case sessions.ToSupervisor(message):
                self.send(self.supervisor_link, message)
            case sessions.ToSyncer(message):
                self.send(self.syncer_link, message)
            case sessions.DropSyncerLink(reason):
                self.record(process_entries.KeptOut(self.state.follows, "RecordPiece", reason))
                self.drop_syncer_link(reason)
            case sessions.DialSyncer(address):
                self.dial_syncer(address, self._session)
            case standby.Store():
                self._stores.append(action)
                if len(self._stores) == 1:
                    self._store_first()
            case standby.Answer(reason):
                self._keep(partial(self._hooks.answer, reason))
            case standby.KeepSpec(spec, plan):
                self._keep(partial(self._hooks.spec, spec, plan))
            case standby.KeepRevoked(revoked):
                self._keep(partial(self._hooks.revoked, revoked))
            case standby.Promote(role):
                self.promoted = role
                self.ref.stop(f"it goes on as the {role}")
            case sessions.Exit(reason):
                self.exit = action
                self.ref.stop(reason)
            case _:
                assert_never(action)

    def _keep(self, keep: Callable[[], object]) -> None:
        """Call a hook that writes; a disk that fails ends no standby."""
        try:
            keep()
        except (OSError, DiskError) as error:
            self.record(process_entries.Disk(str(error)))
        except IslandsError as error:
            self.fail("the run", error)

    def _session(self, address: str) -> Dialer:
        return self.dial(
            address,
            self._rng,
            opened=self._on_syncer_link,
            received=self._receive,
            closed=lambda: self.post(standby.SyncerGone()),
        )

    def _on_syncer_link(self) -> None:
        link = self.syncer_link
        self.post(standby.SyncerLinked("" if link is None else link.remote))

    def _store_first(self) -> None:
        """Write files in their order, since a later one names what an earlier one holds.

        As long as the disk fails the first one is tried again, and nothing is confirmed.
        """
        store = self._stores[0]
        piece = store.piece

        def write() -> str:
            head = self._slots.take(piece.file, list(store.parts))
            return "" if head is None or head.sequence != piece.sequence else head.digest

        def failed(error: IslandsError) -> None:
            if not isinstance(error, DiskError):
                self.fail("the copy", error)
            elif not self.ref.stopped:
                self.record(process_entries.Disk(str(error)))
                self.post(standby.DiskFailed())
                asyncio.get_running_loop().call_later(DISK_RETRY_S, self._store_first)

        def done(digest: str) -> None:
            if self.ref.stopped:
                return
            self.post(standby.Stored(store, digest))
            self._stores.popleft()
            if self._stores:
                self._store_first()

        attempt(self._worker, write, done=done, failed=failed)

    def _receive(self, envelope: Envelope) -> None:
        self.post(standby.MessageArrived(envelope.body, envelope.payload))


def held_on(slots: Slots, layout: Layout) -> dict[str, str]:
    """Return the digests of the records that a disk claims to hold, by their files."""
    names = (METADATA, *fragment_names(len(layout.fragments)))
    return {head.file: head.digest for name in names for head in slots.look(name).heads}


def file_bytes_max(layout: Layout) -> int:
    """Return the most bytes that a file of a run's journal may have."""
    largest = max(fragment.size for fragment in layout.fragments)
    return HEADER_BYTES_MAX + ARRAYS_MAX * VALUE_BYTES * largest
