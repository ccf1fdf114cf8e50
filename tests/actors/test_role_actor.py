"""What the actors of all roles share."""

import asyncio
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from islands.actors.role_actor import ENTRIES_PER_S, Context, EntryLimit, RoleActor, too_long
from islands.files.tape_writing import MemoryTape
from islands.layout.leaves import Fragment, Leaf, layout_of
from islands.protocol.identities import Incarnation, LearnerName, Role
from islands.protocol.messages.control import Note
from islands.protocol.messages.membership import TEXTS_MAX, Join, Leave, Stop
from islands.protocol.messages.registry import MESSAGE_TYPES, PROTOCOL
from islands.protocol.settings.choices import Pattern
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.kinds import decode_fields
from islands.protocol.tape.process_entries import Refused
from islands.protocol.tape.round_entries import Journalled
from messaging.codec.frames import Codec
from messaging.codec.limits import Limits
from messaging.envelope import Envelope
from messaging.errors import EncodeError
from messaging.links.link import Lane, Link
from messaging.links.memory_link import MemoryNetwork
from tests.protocol.tape.samples import MERGED

LAYOUT = layout_of([Leaf("w", (1,))], [Fragment(0, (), 1)], Pattern.BALANCED, {})


class Strict:
    """A network of this process that refuses to send what its codec cannot encode."""

    def __init__(self, codec: Codec | None = None) -> None:
        self._inner = MemoryNetwork()
        self.codec = codec or Codec([Stop], Limits(header_bytes=100))
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
        self.admit, self.withdraw = inner.admit, inner.withdraw

    @property
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def host(self) -> None:
        return

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
    network, tape = Strict(), MemoryTape()
    network.listen("hub")
    actor = RoleActor[object]("learner", Context(RunSettings(), LAYOUT, network, tape))
    link = await network.dial("hub", local="learner")
    assert actor.send(link, Stop("short"))
    with pytest.raises(EncodeError, match="at most 100"):
        actor.send(link, Stop("x" * 100))
    assert [b'"failed"' in line and b"at most 100" in line for line in tape.lines] == [
        False,
        True,
    ]


async def test_a_merge_of_thousands_is_noted_in_one_frame() -> None:
    network, tape = Strict(Codec(MESSAGE_TYPES)), MemoryTape()
    listener = network.listen("supervisor")
    context = Context(RunSettings(), LAYOUT, network, tape, reports=True)
    actor = RoleActor[object]("syncer", context)
    opened = asyncio.Event()
    actor.dial(
        context.supervisor,
        random.Random(0),
        opened=opened.set,
        received=lambda _: None,
        closed=lambda: None,
    )
    link = await listener.accept()
    await opened.wait()
    names = [LearnerName(f"learner-{index:05}") for index in range(4096)]
    weights = [1 / 3] * len(names)
    count = len(names)
    actor.record(replace(MERGED, contributions=count, participants=names, weights=weights))
    note = (await link.receive()).body
    assert isinstance(note, Note)
    told = replace(MERGED, contributions=count, participants=names[:64], weights=weights[:64])
    assert decode_fields(note.kind, note.fields) == told
    assert names[-1].encode() in tape.lines[-1]
    await actor.kill()


def test_so_many_entries_a_second_and_a_count_of_the_rest() -> None:
    limit = EntryLimit(3)
    assert [limit.left_out(0.1) for _ in range(5)] == [0, 0, 0, None, None]
    assert [limit.left_out(1.5) for _ in range(2)] == [2, 0]
    assert limit.left_out(1e6) == 0


async def test_refusals_by_the_thousand_leave_few_entries_and_no_other_is_missed() -> None:
    tape = MemoryTape()
    actor = RoleActor[object]("hub", Context(RunSettings(), LAYOUT, MemoryNetwork(), tape))
    for number in range(10_000):
        actor.record(Refused(str(number), "no"))
    actor.record(Journalled(1))
    assert sum(b'"refused"' in line for line in tape.lines) <= 2 * ENTRIES_PER_S
    assert b'"journalled"' in tape.lines[-1]


def leave(characters: int) -> Leave:
    return Leave(LearnerName("ana"), Incarnation(1, 1), "r" * characters)


def join(characters: int) -> Join:
    """A wish to be admitted under so long a name."""
    return Join(PROTOCOL, "run", Role.LEARNER, "n" * characters, "layout")


@pytest.mark.parametrize(("field", "make"), [("name", join), ("reason", leave)])
def test_a_longer_text_is_not_received(field: str, make: Callable[[int], object]) -> None:
    most = TEXTS_MAX[field]
    assert too_long(make(most)) is None
    told = too_long(make(most + 1))
    assert told == f"a {field} of {most + 1} characters; at most {most} are allowed"


def test_what_has_no_such_text_is_received() -> None:
    assert too_long(object()) is None
