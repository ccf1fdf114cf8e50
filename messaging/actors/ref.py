"""A reference to an actor: the only thing others may hold of it.

`tell` leaves a message and goes on. `ask` waits for what the actor's handler returns, for no
longer than the caller says. `stop` asks the actor to end after what already waits in its mailbox.
"""

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from messaging.actors.mailbox import Mailbox
from messaging.errors import ActorStopped, AskTimedOut, LocalFault

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Question(Generic[T]):
    """A message whose sender waits for the answer."""

    message: T
    answer: asyncio.Future[object]


class ActorRef(Generic[T]):
    """Handle by which other actors reach one actor. Hold it as long as you like.

    Attributes:
        name: The actor's name.
        stop_reason: Why the actor was asked to stop; None while nobody has asked.
    """

    __slots__ = ("_loop", "_mailbox", "name", "stop_reason")

    def __init__(self, name: str, mailbox: Mailbox[T | Question[T]]) -> None:
        """Point to the actor that reads `mailbox`. Actors make their own reference."""
        self.name = name
        self.stop_reason: str | None = None
        self._mailbox = mailbox
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        """Show the actor's name."""
        return f"ActorRef({self.name!r})"

    @property
    def stopped(self) -> bool:
        """Whether the actor takes no further messages."""
        return self._mailbox.closed

    def tell(self, message: T) -> bool:
        """Leave a message in the mailbox; never waits. Only on the loop's thread.

        Returns:
            False if the actor has stopped or its mailbox is full: the message is not handled.
        """
        return self._mailbox.put_nowait(message)

    def tell_later(self, delay_s: float, message: T) -> asyncio.TimerHandle:
        """Leave a message after `delay_s` seconds; cancel the returned handle to prevent it."""
        return asyncio.get_running_loop().call_later(delay_s, self._mailbox.put_nowait, message)

    def tell_threadsafe(self, message: T) -> bool:
        """Leave a message from another thread.

        Returns:
            False if the actor's loop has ended. True says that the message was posted to the
            loop, not that the mailbox had room for it.

        Raises:
            LocalFault: The actor does not run yet, so its loop is not known.
        """
        if self._loop is None:
            raise LocalFault(f"actor {self.name!r} does not run yet: start it before its threads")
        try:
            self._loop.call_soon_threadsafe(self._mailbox.put_nowait, message)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def ask(self, message: T, *, timeout_s: float) -> object:
        """Leave a message and wait for what the handler returns.

        Raises:
            AskTimedOut: No answer within `timeout_s` seconds; the message may still be handled.
            ActorStopped: The actor has stopped, refused the message, or failed handling it.
        """
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if not self._mailbox.put_nowait(Question(message, answer)):
            state = "has stopped" if self.stopped else "has a full mailbox"
            raise ActorStopped(f"actor {self.name!r} {state}")
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            raise AskTimedOut(f"actor {self.name!r} did not answer within {timeout_s} s") from error

    def stop(self, reason: str) -> None:
        """Ask the actor to end once it has handled what waits. Only the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self._mailbox.close()

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remember the loop on which the actor runs. The actor calls it as it starts."""
        self._loop = loop
