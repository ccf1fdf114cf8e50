"""Two networks as one: memory links for actors of this process, another network for the rest.

An address with a scheme (`ws://…`) is dialled outside; a bare name is dialled inside. Whoever
listens is reached both ways, and told outwards by the outer address.
"""

from messaging.actors.scope import Scope
from messaging.errors import LinkClosed
from messaging.links.backlog import BacklogListener
from messaging.links.link import Link, Listener, Network
from messaging.links.memory_link import BACKLOG, MemoryNetwork


class JointListener(BacklogListener[Link]):
    """Accepts from both networks, in the order in which peers come."""

    def __init__(self, inner: Listener, outer: Listener, scope: Scope) -> None:
        super().__init__(outer.address, BACKLOG)
        self._listeners = (inner, outer)
        for listener in self._listeners:
            scope.spawn(self._take(listener), f"accept-{listener.address}")

    def close(self) -> None:
        """Accept nobody any more; sessions that wait unaccepted are closed."""
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


class JointNetwork:
    """See the head of this file; keeps the contract of `messaging.links.link.Network`.

    Args:
        outer: Reaches other processes.
        scope: Owner of the tasks that accept.
    """

    def __init__(self, outer: Network, scope: Scope) -> None:
        self._inner = MemoryNetwork()
        self._outer = outer
        self._scope = scope

    async def dial(self, address: str, *, local: str) -> Link:
        """Open a session: outside if the address has a scheme, else inside.

        Raises:
            DialFailed: Nobody listens there, or no answer came in time.
        """
        network: Network = self._outer if "://" in address else self._inner
        return await network.dial(address, local=local)

    def listen(self, address: str, *, guests: bool = False) -> JointListener:
        """Let others dial `address`, from inside by this name.

        Raises:
            LocalFault: The address is taken.
        """
        outer = self._outer.listen(address, guests=guests)
        return JointListener(self._inner.listen(address), outer, self._scope)
