"""An actor: private state, one mailbox, and handlers that run one at a time.

An actor ends in one of three ways, and each leaves it in a different manner:

    stopped     `ref.stop(reason)`: takes nothing new, handles what waits, then `on_stop(reason)`;
                `run` returns
    failed      a handler raised: `on_failure(error)`; `run` raises the same error, so that the
                process, which is the unit of restart, ends
    cancelled   the task of `run` was cancelled (a scope closes, a simulated host dies): no
                handler is called, as none would be in a process that is killed

A mailbox that is never empty does not starve the rest of the loop: after every `MESSAGES_AT_ONCE`
messages, timers that are due and sockets that can be read have their turn. It is a count, and no
time, so that a run on the virtual clock is repeated to the byte.
"""

import asyncio
from itertools import count
from typing import Generic, TypeVar

from messaging.actors.mailbox import Mailbox
from messaging.actors.ref import ActorRef
from messaging.errors import LocalFault, MailboxClosed

T = TypeVar("T")

DEFAULT_CAPACITY = 4096

MESSAGES_AT_ONCE = 8
"""Of one mailbox, before others have their turn: 16 ms if a message takes 2 ms."""


class Actor(Generic[T]):
    """Base class: override the handlers, start it with `await actor.run()`.

    Attributes:
        name: Unique among the actors of one system.
        ref: What others are given.
        mailbox: For figures only (`high_water`, `dropped`); nobody else reads from it.
    """

    def __init__(
        self, name: str, *, capacity: int = DEFAULT_CAPACITY, room: int | None = None
    ) -> None:
        """Make an actor with an empty mailbox; it may be told things before it runs."""
        self.name = name
        self.mailbox: Mailbox[T] = Mailbox(capacity, room=room)
        self.ref: ActorRef[T] = ActorRef(name, self.mailbox)
        self._started = False

    async def on_start(self) -> None:
        """Prepare; runs once, before the first message."""

    async def on_message(self, message: T) -> None:
        """Handle one message."""
        raise NotImplementedError

    async def on_stop(self, reason: str) -> None:
        """Say goodbye; runs once, after the last message."""

    async def on_failure(self, error: BaseException) -> None:
        """Report an error that a handler raised; the actor ends whatever is done here."""

    async def run(self) -> None:
        """Handle messages until the actor is stopped.

        Raises:
            LocalFault: The actor was run before; it is not restarted, a new one is made.
            Exception: Whatever a handler raised, after `on_failure` has seen it.
        """
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
