"""Two networks as one: memory links for actors of this process, another network for the rest.

An address with a scheme (`ws://…`) is dialled on the outer network; a bare name is dialled inside
this process. A listener accepts from both, and advertises the outer address.
"""

from messaging.actors.scope import Scope
from messaging.errors import LinkClosed
from messaging.links.backlog import BacklogListener
from messaging.links.link import Link, Listener, Network
from messaging.links.memory_link import BACKLOG, MemoryNetwork


class CompositeListener(BacklogListener[Link]):
    """Accepts sessions from both networks, in the order of their arrival."""

    def __init__(self, inner: Listener, outer: Listener, scope: Scope) -> None:
        super().__init__(outer.address, BACKLOG)
        self._listeners = (inner, outer)
        for listener in self._listeners:
            scope.spawn(self._take(listener), f"accept-{listener.address}")

    def close(self) -> None:
        """Stop listening, and close the sessions that wait to be accepted."""
        for listener in self._listeners:
            listener.close()
        super().close()

    async def _take(self, listener: Listener) -> None:
        while True:  # until the listener closes
            try:
                link = await listener.accept()
            except LinkClosed:
                return
            if not self.offer(link):
                link.close("too many sessions wait here")


class CompositeNetwork:
    """Routes by the form of the address; implements `messaging.links.link.Network`.

    Args:
        outer: The network that reaches other processes.
        scope: Owner of the tasks that accept sessions.
    """

    def __init__(self, outer: Network, scope: Scope) -> None:
        self._inner = MemoryNetwork()
        self._outer = outer
        self._scope = scope

    async def dial(self, address: str, *, local: str) -> Link:
        """Open a session: on the outer network if the address has a scheme, else inside.

        Raises:
            DialFailed: Nobody listens there, or no answer came in time.
        """
        network: Network = self._outer if "://" in address else self._inner
        return await network.dial(address, local=local)

    def listen(self, address: str, *, guests: bool = False) -> CompositeListener:
        """Let others dial the outer address, and actors of this process the bare name.

        Raises:
            LocalFault: The address is taken.
        """
        outer = self._outer.listen(address, guests=guests)
        return CompositeListener(self._inner.listen(address), outer, self._scope)
