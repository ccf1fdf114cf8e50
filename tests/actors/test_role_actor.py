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
from messaging.links.link import Lane
from messaging.links.memory_link import MemoryLink, MemoryNetwork
from tests.protocol.tape.samples import MERGED

LAYOUT = layout_of([Leaf("w", (1,))], [Fragment(0, (), 1)], Pattern.BALANCED, {})


class Strict(MemoryNetwork):
    """A network of this process that refuses to send what its codec cannot encode."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec

    async def dial(self, address: str, *, local: str) -> MemoryLink:
        link = await super().dial(address, local=local)
        send = link.send

        def encoded(
            envelope: Envelope, lane: Lane = Lane.CONTROL, topic: str | None = None
        ) -> bool:
            self.codec.encode(envelope)
            return send(envelope, lane, topic)

        link.send = encoded  # type: ignore[method-assign]  # as a link to another process does
        return link


async def test_what_cannot_be_sent_for_its_size_is_told_and_raised() -> None:
    network, tape = Strict(Codec([Stop], Limits(header_bytes=100))), MemoryTape()
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


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("name", lambda text: Join(PROTOCOL, "run", Role.LEARNER, text, "layout")),
        ("reason", lambda text: Leave(LearnerName("ana"), Incarnation(1, 1), text)),
    ],
)
def test_a_longer_text_is_not_received(field: str, make: Callable[[str], object]) -> None:
    most = TEXTS_MAX[field]
    assert too_long(make(most * "x")) is None
    told = too_long(make("x" * (most + 1)))
    assert told == f"a {field} of {most + 1} characters; at most {most} are allowed"


def test_what_has_no_such_text_is_received() -> None:
    assert too_long(object()) is None
