"""What the actors of all roles share."""

import pytest

from islands.config import RunSettings
from islands.layout import Fragment, Leaf, layout_of
from islands.messages import Stop
from islands.role import RoleActor, Surroundings
from islands.tape import MemoryTape
from messaging.codec import Codec
from messaging.envelope import Envelope
from messaging.errors import EncodeError
from messaging.limits import Limits
from messaging.link import Lane, Link
from messaging.memory_link import MemoryNetwork


class Strict:
    """A network of this process that refuses to send what its codec cannot encode."""

    def __init__(self) -> None:
        self._inner = MemoryNetwork()
        self.codec = Codec([Stop], Limits(header_bytes=100))
        self.listen = self._inner.listen

    async def dial(self, address: str, *, local: str) -> "StrictLink":
        return StrictLink(await self._inner.dial(address, local=local), self.codec)


class StrictLink:
    """One end of a memory link that encodes, as a link to another process does."""

    def __init__(self, inner: Link, codec: Codec) -> None:
        self._codec = codec
        self._inner = inner
        self.local, self.remote = inner.local, inner.remote
        self.receive, self.close, self.holds = inner.receive, inner.close, inner.holds

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def close_reason(self) -> str | None:
        return self._inner.close_reason

    @property
    def bytes_sent(self) -> int:
        return self._inner.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self._inner.bytes_received

    def send(self, envelope: Envelope, lane: Lane = Lane.CONTROL, topic: str | None = None) -> bool:
        self._codec.encode(envelope)
        return self._inner.send(envelope, lane, topic)


async def test_what_cannot_be_sent_for_its_size_is_told_and_raised() -> None:
    """It is never skipped as a lost message is: the tape says why, and the actor ends with it."""
    layout = layout_of([Leaf("w", (1,))], [Fragment(0, (), 1)], "balanced", {})
    network, tape = Strict(), MemoryTape()
    network.listen("hub")
    actor = RoleActor[object]("learner", Surroundings(RunSettings(), layout, network, tape))
    link = await network.dial("hub", local="learner")
    assert actor.send(link, Stop("short"))
    with pytest.raises(EncodeError, match="at most 100"):
        actor.send(link, Stop("x" * 100))
    assert [b'"unsendable"' in line and b"at most 100" in line for line in tape.lines] == [True]
