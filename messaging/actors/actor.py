"""An actor: private state, one mailbox, and handlers that run one at a time.

Others hold nothing of it but its reference. `tell` queues a message and returns at once; `stop`
asks the actor to end after the messages that already wait in its mailbox.

An actor ends in one of three ways:

    stopped     Somebody called `ref.stop(reason)`. The actor takes no new message, handles those
                that wait, then calls `on_stop(reason)`; `run` returns.
    failed      A handler raised. The actor calls `on_failure(error)`; `run` raises the same error,
                so that the process, which is the unit of restart, ends.
    cancelled   The task of `run` was cancelled (a scope closes, a simulated host dies). No
                handler is called, as none would be in a process that is killed.

A mailbox that is never empty does not starve the rest of the loop: after every `MESSAGES_AT_ONCE`
messages the actor yields to timers that are due and sockets that can be read. The bound is a count
and not a time, so that a run on the virtual clock repeats to the byte.
"""

import asyncio
from itertools import count
from typing import Generic, TypeVar

from messaging.actors.mailbox import Mailbox
from messaging.errors import LocalFault, MailboxClosed

T = TypeVar("T")

DEFAULT_CAPACITY = 4096

MESSAGES_AT_ONCE = 8
"""Messages handled from one mailbox before the actor yields: 16 ms if a message takes 2 ms."""


class Actor(Generic[T]):
    """Base class of actors: override the handlers, then start one with `await actor.run()`.

    Attributes:
        name: Unique among the actors of one system.
        ref: The handle through which others reach this actor.
        mailbox: Read it for statistics only (`high_water`, `dropped`); only `run` takes messages.
    """

    def __init__(
        self, name: str, *, capacity: int = DEFAULT_CAPACITY, room: int | None = None
    ) -> None:
        """Make an actor with an empty mailbox, which takes messages before `run` as well."""
        self.name = name
        self.mailbox: Mailbox[T] = Mailbox(capacity, room=room)
        self.ref: ActorRef[T] = ActorRef(name, self.mailbox)
        self._started = False

    async def on_start(self) -> None:
        """Prepare the actor; called once, before the first message."""

    async def on_message(self, message: T) -> None:
        raise NotImplementedError

    async def on_stop(self, reason: str) -> None:
        """Say goodbye; called once, after the last message."""

    async def on_failure(self, error: BaseException) -> None:
        """Report an error that a handler raised; the actor ends, whatever this does."""

    async def run(self) -> None:
        """Handle messages until the actor is stopped."""
        if self._started:
            raise LocalFault(f"actor {self.name!r} ran already: make a new one instead")
        self._started = True
        try:
            await self._live()
        except Exception as error:
            await self.on_failure(error)
            raise
        finally:
            self.mailbox.close()
            self.mailbox.clear()

    async def _live(self) -> None:
        await self.on_start()
        mailbox = self.mailbox
        for number in count():
            if number % MESSAGES_AT_ONCE == MESSAGES_AT_ONCE - 1:
                await asyncio.sleep(0)
            try:
                message = await mailbox.get()
            except MailboxClosed:
                break
            await self.on_message(message)
        await self.on_stop(self.ref.stop_reason or "mailbox closed")


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
