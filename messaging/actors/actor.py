"""An actor: private state, one mailbox, and handlers that run one at a time.

Others hold nothing of it but its reference. `tell` queues a message and returns at once; `stop`
asks the actor to end after the messages that already wait in its mailbox. `run` runs once.

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
from messaging.errors import MailboxClosed

T = TypeVar("T")

DEFAULT_CAPACITY = 4096

MESSAGES_AT_ONCE = 8
"""Messages handled from one mailbox before the actor yields: 16 ms if a message takes 2 ms."""


class Actor(Generic[T]):
    """Base class of actors: override the handlers, then start one with `await actor.run()`.

    Others reach it through `ref`; only `run` takes messages from `mailbox`.
    """

    def __init__(
        self, name: str, *, capacity: int = DEFAULT_CAPACITY, room: int | None = None
    ) -> None:
        self.name = name
        self.mailbox: Mailbox[T] = Mailbox(capacity, room=room)
        self.ref: ActorRef[T] = ActorRef(self.mailbox)

    async def on_start(self) -> None:
        """Prepare the actor before its first message."""

    async def on_message(self, message: T) -> None:
        raise NotImplementedError

    async def on_stop(self, reason: str) -> None:
        """Say goodbye after the last message."""

    async def on_failure(self, error: BaseException) -> None:
        """Report an error that a handler raised; the actor ends, whatever this does."""

    async def run(self) -> None:
        """Handle messages until the actor is stopped."""
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
    """Handle by which other actors reach one actor. It may outlive the actor."""

    def __init__(self, mailbox: Mailbox[T]) -> None:
        self.stop_reason: str | None = None
        self._mailbox = mailbox

    @property
    def stopped(self) -> bool:
        """Whether the actor takes no further messages."""
        return self._mailbox.closed

    def tell(self, message: T) -> bool:
        """Queue a message without waiting; False if the actor has stopped, or its mailbox is full.

        Call it only on the loop's thread.
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
