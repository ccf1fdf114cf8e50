"""The supervisor's decisions: `handle(event, now_s)` returns actions, and performs none itself."""

from islands.protocol.errors import UNFORESEEN
from islands.protocol.sessions import Received
from islands.protocol.supervisor import commands, events, launching, membership
from islands.protocol.supervisor.actions import Action, Drop
from islands.protocol.supervisor.eviction import MemberRecord
from islands.protocol.supervisor.memory import EVENTS, MESSAGES, SupervisorMemory
from islands.protocol.tape.process_entries import Refused

RULES = (commands, launching, membership)
"""The modules whose rules are registered by their import."""


class SupervisorState:
    """The pure state of one start of the supervisor."""

    def __init__(self, memory: SupervisorMemory) -> None:
        self.memory = memory

    @property
    def members(self) -> dict[str, MemberRecord]:
        """All members that were admitted or recognised and are not forgotten, by name."""
        return self.memory.members

    @property
    def finished(self) -> str | None:
        """Why the run is over; None while it goes on."""
        return self.memory.finished

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Handle one event; if that fails, close the link of the peer that caused it.

        Returns:
            The actions to perform, in order.
        """
        memory = self.memory
        memory.actions = []
        membership.notice_suspension(memory, now_s)
        try:
            EVENTS.handle(memory, event, now_s)
        except UNFORESEEN as error:
            if not isinstance(event, events.PeerEvent):
                raise
            reason = f"what it said cannot be taken in: {error!r}"
            memory.record(Refused("", reason))
            memory.actions.append(Drop(event.connection, reason))
        memory.publish()
        memory.forget_ended()
        return memory.actions


@EVENTS.handles(Received)
def on_received(memory: SupervisorMemory, event: Received, now_s: float) -> None:
    MESSAGES.handle(memory, event.message, event.connection, now_s)
