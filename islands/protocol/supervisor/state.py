"""The supervisor's decisions: `handle(event, now_s)` returns actions, and performs none itself.

The rules are in the modules that the package's docstring lists; this one applies them.
"""

from typing import assert_never

from islands.protocol.errors import UNFORESEEN
from islands.protocol.handlers import Received
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor import events
from islands.protocol.supervisor.actions import Action, Drop
from islands.protocol.supervisor.commands import on_command
from islands.protocol.supervisor.core import HANDLERS, Core
from islands.protocol.supervisor.eviction import MemberRecord
from islands.protocol.supervisor.launching import LEARNERS, on_process_ended
from islands.protocol.supervisor.membership import (
    give_way,
    judge_all,
    notice_pause,
    on_heartbeat,
    on_join,
    on_link_closed,
)
from islands.protocol.supervisor.restarts import Restarts
from islands.protocol.tape.process_entries import Refused


class SupervisorState:
    """The pure state of one start of the supervisor.

    Args:
        settings: what all members of the run agree on.
        fingerprint: digest of the layout; a member with another one is refused.
        epoch: number of this start, higher than that of every start before it.
        address: address at which others dial the supervisor.
        launched: names of the processes that this supervisor starts, and may kill.
        kinds: learners of which an operator can add more, if any processes are launched.
        syncers: addresses from the settings; those that live syncers announce replace them.
        now_s: time of the start, in seconds on the supervisor's clock.
    """

    def __init__(
        self,
        settings: RunSettings,
        fingerprint: str,
        *,
        epoch: int,
        address: str,
        launched: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (LEARNERS,),
        syncers: tuple[str, ...] = (),
        now_s: float,
    ) -> None:
        self._core = Core(
            settings=settings,
            fingerprint=fingerprint,
            epoch=epoch,
            address=address,
            syncers=syncers,
            launched={name: Restarts() for name in launched},
            kinds=kinds,
            ticked_s=now_s,
        )

    @property
    def core(self) -> Core:
        """The memory, which the actor and the tests may read and must not write."""
        return self._core

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def members(self) -> dict[str, MemberRecord]:
        """All members that were admitted or recognised and are not forgotten, by name."""
        return self._core.members

    @property
    def finished(self) -> str | None:
        """Why the run is over; None while it goes on."""
        return self._core.finished

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        core = self._core
        core.actions = []
        notice_pause(core, now_s)
        if isinstance(event, events.PeerEvent):
            self._dispatch_from_peer(event, now_s)
        else:
            self._dispatch(event, now_s)
        core.publish()
        core.forget_ended()
        return core.actions

    def _dispatch_from_peer(self, event: events.PeerEvent, now_s: float) -> None:
        """Handle a peer's event; if that fails, close the peer's link, but keep running.

        The tape gets the reason.
        """
        try:
            self._dispatch(event, now_s)
        except UNFORESEEN as error:
            core, reason = self._core, f"what it said cannot be taken in: {error!r}"
            core.record(Refused("", reason))
            core.actions.append(Drop(event.connection, reason))

    def _dispatch(self, event: events.Event, now_s: float) -> None:
        core = self._core
        match event:
            case events.Ticked():
                core.ticked_s = now_s
                judge_all(core, now_s)
            case events.JoinArrived(message, connection, proven, returns):
                on_join(core, message, connection, now_s, proven=proven, returns=returns)
            case events.HeartbeatArrived(message, connection, host):
                on_heartbeat(core, message, connection, host=host, now_s=now_s)
            case events.NewerSupervisorProven(name, epoch, kept):
                give_way(core, name, epoch, kept=kept)
            case Received(message, connection):
                HANDLERS.handle(core, message, connection, now_s)
            case events.CommandArrived(message, connection, genuine):
                on_command(core, message, connection, genuine=genuine, now_s=now_s)
            case events.LinkClosed(connection):
                on_link_closed(core, connection, now_s)
            case events.ProcessEnded(name, reason):
                on_process_ended(core, name, reason, now_s)
            case _:
                assert_never(event)
