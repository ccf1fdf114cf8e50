"""A reference to an actor: the only handle that others may hold.

`tell` queues a message and returns at once. `stop` asks the actor to end after the messages that
already wait in its mailbox.
"""

import asyncio
from typing import Generic, TypeVar

from messaging.actors.mailbox import Mailbox

T = TypeVar("T")


class ActorRef(Generic[T]):
    """Handle by which other actors reach one actor. It may outlive the actor.

    Attributes:
        name: The actor's name.
        stop_reason: Why the actor was asked to stop; None while nobody has asked.
    """

    __slots__ = ("_mailbox", "name", "stop_reason")

    def __init__(self, name: str, mailbox: Mailbox[T]) -> None:
        """Point to the actor that reads `mailbox`. Each actor makes its own reference."""
        self.name = name
        self.stop_reason: str | None = None
        self._mailbox = mailbox

    def __repr__(self) -> str:
        """Show the actor's name."""
        return f"ActorRef({self.name!r})"

    @property
    def stopped(self) -> bool:
        """Whether the actor takes no further messages."""
        return self._mailbox.closed

    def tell(self, message: T) -> bool:
        """Queue a message without waiting; call it only on the loop's thread.

        Returns:
            False if the actor has stopped or its mailbox is full: the message is not handled.
        """
        return self._mailbox.put_nowait(message)

    def tell_later(self, delay_s: float, message: T) -> asyncio.TimerHandle:
        """Queue a message after `delay_s` seconds; cancel the returned handle to prevent it."""
        return asyncio.get_running_loop().call_later(delay_s, self._mailbox.put_nowait, message)

    def stop(self, reason: str) -> None:
        """Ask the actor to end after the waiting messages. Only the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self._mailbox.close()
