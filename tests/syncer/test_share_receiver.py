"""Sessions for shares: who may open one, and what may come over it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.messages.membership import HeartbeatAck, Leave, Refused
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.shares import ContributionShare, ShareHello, ShareWelcome
from islands.protocol.messages.training import Contribution, ContributionReceived, Welcome
from islands.protocol.syncer.shares import ASSEMBLIES_MAX, HOSTS_MAX
from messaging.codec.tensors import digest
from messaging.envelope import Envelope
from messaging.links.link import Lane, Link
from tests.syncer.actor_bench import (
    ANA,
    BEN,
    LAYOUT,
    TICKET,
    WHO,
    Room,
    last_words,
    open_syncer,
    say,
)
from tests.virtual import virtual

SIZE = LAYOUT.fragments[0].size
VALUE = np.arange(SIZE, dtype=np.float32).view(np.uint8).data
HALF = SIZE // 2


def hello_of(room: Room, **changes: object) -> ShareHello:
    """What host 1 of the island says."""
    made = ShareHello(
        protocol=PROTOCOL,
        run="run",
        name=ANA,
        incarnation=WHO,
        credential=room.credentials.sign(ANA, WHO),
        fingerprint=LAYOUT.fingerprint,
        rank=1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


async def host(room: Room, **changes: object) -> Link:
    """A host that has opened a session."""
    link = await room.network.dial("syncer", local="ana-rank-1")
    say(link, hello_of(room, **changes))
    return link


async def island(room: Room) -> tuple[Link, Link]:
    """A member that was sent a pull, and the session of its other host."""
    ana = await room.hello(ANA)
    assert isinstance((await ana.receive()).body, Welcome)
    room.actor.state.core.members.learners[ANA].pulls.send(TICKET.round, 0, 0.0)
    other = await host(room)
    assert isinstance((await other.receive()).body, ShareWelcome)
    return ana, other


def part(start: int, stop: int) -> memoryview:
    """Some elements of the value."""
    return VALUE[4 * start : 4 * stop]


def send(link: Link, body: Contribution | ContributionShare, payload: memoryview) -> None:
    """Send bulk."""
    link.send(Envelope(link.local, link.remote, 1, body, payload=(payload,)), Lane.BULK)


def share(start: int, stop: int, **changes: object) -> ContributionShare:
    """A share of the value."""
    made = ContributionShare(
        ticket=TICKET,
        answer=1,
        fragment=FragmentIndex(0),
        precision="float32",
        ranges=((start, stop),),
        digest=digest(part(start, stop)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


HEAD = Contribution(
    *(TICKET, FragmentIndex(0), Version(1, 0), 1, 1, 1, "float32", digest(VALUE)),
    answer=1,
    ranges=((0, HALF),),
)


@pytest.mark.parametrize("head_first", [True, False])
@virtual
async def test_a_contribution_arrives_when_its_last_share_does(*, head_first: bool) -> None:
    """Its member is told; to the rules it is one contribution, which is late here."""
    async with open_syncer() as room:
        ana, other = await island(room)
        deeds: list[Callable[[], None]] = [
            lambda: send(ana, HEAD, part(0, HALF)),
            lambda: send(other, share(HALF, SIZE), part(HALF, SIZE)),
        ]
        for number, deed in enumerate(deeds if head_first else reversed(deeds)):
            assert room.kinds().count("fate") == 0
            deed()
            await asyncio.sleep(0.1)
            assert room.kinds().count("fate") == number
        told = [(await ana.receive()).body for _ in range(3)]
        assert ContributionReceived(TICKET) in told
        assert len(room.actor._inspections._assemblies) == 0  # noqa: SLF001


REFUSED = {
    "another protocol": {"protocol": PROTOCOL + 1},
    "another run": {"run": "other"},
    "another layout": {"fingerprint": "other"},
    "a forged credential": {"credential": "forged"},
    "the leader's own rank": {"rank": 0},
    "a rank beyond all": {"rank": HOSTS_MAX},
    "a name that is not linked": {"name": BEN},
    "another incarnation": {"incarnation": Incarnation(1, 2)},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
@virtual
async def test_who_is_no_host_of_a_member_is_refused(changes: dict[str, object]) -> None:
    """With a sentence; a host whose member has no link yet may try again."""
    async with open_syncer() as room:
        await room.hello(ANA)
        await asyncio.sleep(0.1)
        name = LearnerName(str(changes.get("name", ANA)))
        incarnation = changes.get("incarnation", WHO)
        assert isinstance(incarnation, Incarnation)
        credential = room.credentials.sign(name, incarnation)
        link = await host(room, **{"credential": credential, **changes})
        (word,) = await last_words(link)
        assert isinstance(word, Refused)
        assert word.retry == ("name" in changes or "incarnation" in changes)
        assert "share_dropped" in room.kinds()


@virtual
async def test_a_newer_session_of_a_host_replaces_the_earlier_one() -> None:
    """Links cut and come back; each host has one."""
    async with open_syncer() as room:
        _, first = await island(room)
        second = await host(room)
        assert isinstance((await second.receive()).body, ShareWelcome)
        await asyncio.sleep(0.1)
        assert first.closed
        assert room.kinds().count("host_linked") == 2
        assert room.kinds().count("host_unlinked") == 1
        third = await host(room, rank=2)
        assert isinstance((await third.receive()).body, ShareWelcome)
        assert not second.closed


@virtual
async def test_a_session_hears_heartbeats_and_ends_with_its_incarnation() -> None:
    """So a host knows that its link is alive, and a fenced incarnation sends nothing more."""
    async with open_syncer() as room:
        ana, other = await island(room)
        assert isinstance((await other.receive()).body, HeartbeatAck)
        say(ana, Leave(ANA, WHO, "bye"))
        await asyncio.sleep(0.1)
        send(other, share(HALF, SIZE), part(HALF, SIZE))
        await last_words(other)
        assert "share_dropped" in room.kinds()


NONSENSE: dict[str, tuple[ContributionShare, memoryview]] = {
    "too many bytes": (share(HALF, SIZE), VALUE),
    "too few bytes": (share(HALF, SIZE), part(HALF, SIZE - 1)),
    "beyond the end": (share(HALF, SIZE, ranges=((HALF, 2 * SIZE),)), VALUE),
    "no ranges": (share(HALF, SIZE, ranges=()), part(HALF, SIZE)),
    "no such fragment": (share(HALF, SIZE, fragment=9), part(HALF, SIZE)),
    "encoded as one": (share(HALF, SIZE, precision="int8"), part(HALF, SIZE)),
    "damaged": (share(HALF, SIZE), part(0, SIZE - HALF)),
    "of others' elements": (share(HALF - 1, SIZE), part(HALF - 1, SIZE)),
}


@pytest.mark.parametrize(("body", "payload"), NONSENSE.values(), ids=NONSENSE)
@virtual
async def test_nonsense_ends_the_session_and_nothing_else(
    body: ContributionShare, payload: memoryview
) -> None:
    """The tape says why; the member sends the share itself, and its contribution is whole."""
    async with open_syncer() as room:
        ana, other = await island(room)
        send(ana, HEAD, part(0, HALF))
        await asyncio.sleep(0.1)
        send(other, body, payload)
        await last_words(other)
        assert "share_dropped" in room.kinds()
        assert "fate" not in room.kinds()
        send(ana, share(HALF, SIZE), part(HALF, SIZE))
        await asyncio.sleep(0.1)
        assert room.kinds().count("fate") == 1
        assert room.actor.state.core.members.learners[ANA].strikes == []


@virtual
async def test_a_share_in_anothers_name_is_an_impostor() -> None:
    """A host speaks for its own member alone."""
    async with open_syncer() as room:
        await room.hello(BEN)
        _, other = await island(room)
        ticket = Ticket(1, 0, BEN, WHO)
        send(other, share(HALF, SIZE, ticket=ticket), part(HALF, SIZE))
        await last_words(other)
        assert "impostor" in room.kinds()


@pytest.mark.parametrize("ticket", [Ticket(1, 3, ANA, WHO), Ticket(9, 0, ANA, WHO)])
@virtual
async def test_a_share_of_an_unknown_ticket_costs_nothing(ticket: Ticket) -> None:
    """It may be late, so the session goes on."""
    async with open_syncer() as room:
        _, other = await island(room)
        send(other, share(HALF, SIZE, ticket=ticket), part(HALF, SIZE))
        await asyncio.sleep(0.1)
        assert "share_dropped" in room.kinds()
        assert not other.closed
        assert len(room.actor._inspections._assemblies) == 0  # noqa: SLF001


@virtual
async def test_shares_without_a_head_are_bounded_and_end_with_the_link() -> None:
    """A hostile host makes up answers; its member's link ends, and all of it is forgotten."""
    async with open_syncer() as room:
        ana, other = await island(room)
        for answer in range(3 * ASSEMBLIES_MAX):
            send(other, share(HALF, SIZE, answer=answer), part(HALF, SIZE))
        await asyncio.sleep(0.1)
        held = room.actor._inspections._assemblies  # noqa: SLF001
        assert len(held) == ASSEMBLIES_MAX
        ana.close("gone")
        await asyncio.sleep(0.1)
        assert len(held) == 0
