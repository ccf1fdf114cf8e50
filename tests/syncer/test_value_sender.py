"""Published values go to each host of an island as its share, or whole to its member."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from islands.protocol.errors import MalformedError
from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.messages.shares import BUFFERS_MAX, UpdateShare, UpdatesInShares
from islands.protocol.messages.training import FragmentProgress, FragmentUpdate
from islands.protocol.ranges import Ranges
from islands.protocol.syncer.shares import HOSTS_MAX, parted
from messaging.codec.tensors import digest_of
from messaging.envelope import Envelope
from messaging.links.link import Link
from tests.syncer.actor_bench import ANA, LAYOUT, WHO, Room, open_syncer, say
from tests.syncer.test_share_receiver import island
from tests.virtual import virtual

SIZES = [fragment.size for fragment in LAYOUT.fragments]
SIZE, HALF = SIZES[0], SIZES[0] // 2
HEADS: tuple[Ranges, ...] = (((0, 3), (HALF, SIZE)), ((0, SIZES[1]),))
OTHERS: tuple[Ranges, ...] = (((3, HALF),), ())
WISH = UpdatesInShares(ANA, WHO, (HEADS, OTHERS))
ZERO = FragmentIndex(0)


def update(fragment: int = 0) -> FragmentUpdate:
    """The version that a seeded syncer has."""
    return FragmentUpdate(1, FragmentIndex(fragment), Version(1, 0), -1, "whole", 0.0, None)


async def asked(room: Room, wish: UpdatesInShares = WISH) -> tuple[Link, Link]:
    """A member that wants its values in shares, and its other host."""
    ana, other = await island(room)
    say(ana, wish)
    await asyncio.sleep(0.1)
    return ana, other


async def values(room: Room, link: Link, *bodies: FragmentUpdate) -> list[Envelope]:
    """Send values to the member; what of them comes over a link."""
    connection = room.actor.state.core.members.learners[ANA].connection
    assert connection is not None
    for body in bodies:
        room.actor._values.send(connection, ANA, body)  # noqa: SLF001
        await asyncio.sleep(0.1)
    found: list[Envelope] = []
    while True:  # until no more has come
        try:
            async with asyncio.timeout(0.01):
                envelope = await link.receive()
        except TimeoutError:
            return found
        if isinstance(envelope.body, FragmentUpdate | UpdateShare):
            found.append(envelope)


def elements(envelope: Envelope) -> int:
    """How many numbers a message has."""
    return sum(np.frombuffer(each, np.float32).size for each in envelope.payload)


@virtual
async def test_each_host_is_sent_its_share_and_the_member_the_rest() -> None:
    """One buffer for each range; together they are the value. Sent again, it is whole."""
    async with open_syncer(seeded=True) as room:
        ana, other = await asked(room)
        (head,) = await values(room, ana, update())
        assert isinstance(head.body, FragmentUpdate)
        assert head.body.ranges == HEADS[0]
        assert head.body.share_digest == digest_of(head.payload)
        assert head.body.digest == "whole"
        (share,) = await values(room, other)
        assert share.body == UpdateShare(ZERO, Version(1, 0), OTHERS[0], digest_of(share.payload))
        assert elements(head) + elements(share) == SIZE
        assert [len(head.payload), len(share.payload)] == [2, 1]
        (again,) = await values(room, ana, update())
        assert isinstance(again.body, FragmentUpdate)
        assert (again.body.ranges, elements(again)) == ((), SIZE)
        assert await values(room, other) == []


@virtual
async def test_what_follows_an_unreported_share_goes_whole() -> None:
    """Until the member reports that version, or a newer one: so few shares wait for a late host."""
    async with open_syncer(seeded=True) as room:
        ana, other = await asked(room)

        async def newer(number: int) -> Ranges:
            body = replace(update(), version=Version(1, number))
            published = room.actor.store._shelves[0].values  # noqa: SLF001
            published[body.version] = published[Version(1, 0)]
            (head,) = await values(room, ana, body)
            assert isinstance(head.body, FragmentUpdate)
            shares = await values(room, other)
            assert bool(shares) == bool(head.body.ranges)
            return head.body.ranges

        def report(number: int) -> None:
            learner = room.actor.state.core.members.learners[ANA]
            told = FragmentProgress(version=Version(1, number))
            fragments = (told, *learner.progress.fragments[1:])
            learner.progress = replace(learner.progress, fragments=fragments)

        assert await newer(5) == HEADS[0]
        assert await newer(6) == ()
        report(4)
        assert await newer(7) == ()
        report(7)
        assert await newer(8) == HEADS[0]
        report(8)
        assert await newer(9) == HEADS[0]


@virtual
async def test_a_fragment_of_one_host_goes_whole() -> None:
    """Where a fragment has fewer elements than the island has devices."""
    async with open_syncer(seeded=True) as room:
        ana, other = await asked(room)
        (head,) = await values(room, ana, update(1))
        assert isinstance(head.body, FragmentUpdate)
        assert (head.body.ranges, elements(head)) == ((), SIZES[1])
        assert await values(room, other) == []


@pytest.mark.parametrize("while_digests", [False, True])
@virtual
async def test_without_a_session_of_every_host_all_goes_to_the_member(
    *, while_digests: bool
) -> None:
    """Also where the session ends while the digests of shares are computed."""
    async with open_syncer(seeded=True) as room:
        ana, other = await asked(room)
        if while_digests:
            connection = room.actor.state.core.members.learners[ANA].connection
            assert connection is not None
            room.actor._values.send(connection, ANA, update())  # noqa: SLF001
            room.actor._shares.sessions.close(connection + 1)  # noqa: SLF001
            (head,) = await values(room, ana)
        else:
            other.close("cut")
            await asyncio.sleep(0.1)
            (head,) = await values(room, ana, update())
        assert isinstance(head.body, FragmentUpdate)
        assert (head.body.ranges, elements(head)) == ((), SIZE)


@virtual
async def test_a_member_may_want_its_values_whole_again() -> None:
    """It knows before the syncer that a host's network is silent."""
    async with open_syncer(seeded=True) as room:
        ana, other = await asked(room)
        say(ana, UpdatesInShares(ANA, WHO, ()))
        await asyncio.sleep(0.1)
        (head,) = await values(room, ana, update())
        assert isinstance(head.body, FragmentUpdate)
        assert head.body.ranges == ()
        assert not other.closed


@virtual
async def test_a_wish_is_void_with_its_link() -> None:
    """A member that comes back asks anew, as it may be another process."""
    async with open_syncer(seeded=True) as room:
        ana, _ = await asked(room)
        ana.close("cut")
        again = await room.hello(ANA)
        await asyncio.sleep(0.1)
        (head,) = await values(room, again, update())
        assert isinstance(head.body, FragmentUpdate)
        assert head.body.ranges == ()


@virtual
async def test_a_wrong_wish_is_refused() -> None:
    """The tape says why, and values come whole."""
    async with open_syncer(seeded=True) as room:
        ana, _ = await asked(room, UpdatesInShares(ANA, WHO, (HEADS, HEADS)))
        assert "share_dropped" in room.kinds()
        (head,) = await values(room, ana, update())
        assert isinstance(head.body, FragmentUpdate)
        assert head.body.ranges == ()


MANY = tuple((2 * index, 2 * index + 1) for index in range(BUFFERS_MAX + 1))
REST = tuple((2 * index + 1, 2 * index + 2) for index in range(BUFFERS_MAX + 1))


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        (((((0, 8),),),), "shares of 1 hosts"),
        (((((0, 8),),),) * (HOSTS_MAX + 1), "shares of 1025 hosts"),
        (((((0, 4),),), (((4, 8),), ((0, 1),))), "not of every fragment"),
        (((((0, 4),),), (((5, 8),),)), "fragment 0 are not all of it"),
        (((((0, 5),),), (((4, 8),),)), r"fragment 0: \(4, 8\) is no range"),
        (((((0, 4),),), (((4, 9),),)), r"fragment 0: \(4, 9\) is no range"),
        (((((4, 8), (0, 2)),), (((2, 4),),)), r"fragment 0: \(0, 2\) is no range"),
    ],
)
def test_shares_of_hosts_are_all_elements_once(
    shares: tuple[tuple[Ranges, ...], ...], why: str
) -> None:
    """Whatever a hostile member says."""
    with pytest.raises(MalformedError, match=why):
        parted(UpdatesInShares(ANA, WHO, shares), [8])


def test_shares_have_few_buffers() -> None:
    """Each range is a buffer of a message, which has a bounded number."""
    wish = UpdatesInShares(ANA, WHO, ((MANY,), (REST,)))
    with pytest.raises(MalformedError, match="more than 64 parts"):
        parted(wish, [2 * BUFFERS_MAX + 2])
