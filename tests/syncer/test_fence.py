"""Ended incarnations never come back, and remembering them takes a bounded record."""

import random

from islands.protocol.identities import Incarnation, LearnerName, Status
from islands.protocol.messages.membership import Evicted, Member, MembershipChanged
from islands.protocol.syncer.events import LinkOpened, MembershipArrived
from islands.protocol.syncer.members import NAMES_KEPT, Fence
from islands.syncer.journal import encode
from tests.syncer.bench import Bench, Learner, seeded

RECORD_BYTES_MAX = 400_000
"""Of the metadata of a run that has two learners, whoever has ended."""

PAGE = 1000


def with_ended(bench: Bench, names: int) -> None:
    """So many learners have come and gone, each under a name of its own, says the supervisor."""
    for begin in range(10, names + 10, PAGE):
        members = tuple(
            Member(
                LearnerName(f"worker-7f3a91c2-{counter:06d}"),
                Incarnation(1, counter),
                Status.EVICTED,
            )
            for counter in range(begin, min(begin + PAGE, names + 10))
        )
        bench.do(MembershipArrived(MembershipChanged(1, members)))


def test_a_record_stays_small_whoever_came_and_went() -> None:
    """Thirty thousand names take the room of a few thousand."""
    bench = seeded("ana", "ben")
    with_ended(bench, 30_000)
    assert len(encode(bench.state.durable)) < RECORD_BYTES_MAX


def test_who_was_forgotten_is_still_fenced() -> None:
    """The first of all those names is not remembered, and its incarnation may not come back."""
    bench = seeded("ana")
    with_ended(bench, 2 * NAMES_KEPT)
    zombie = Learner("worker-7f3a91c2-000010", bench.fragments, 10)
    assert not bench.core.durable.fence.knows(zombie.name)
    bench.do(LinkOpened(bench.hello_of(zombie), 50, trusted=True))
    (word,) = bench.dismissed()
    assert isinstance(word, Evicted)


def test_who_is_below_the_floor_with_an_open_account_goes_on() -> None:
    """A learner that has been here from the beginning reconnects as ever."""
    bench = seeded("ana")
    with_ended(bench, 2 * NAMES_KEPT)
    floor = bench.core.durable.fence.floor
    assert floor is not None
    assert bench.learners["ana"].incarnation < floor
    bench.drop("ana")
    bench.hello("ana", connection=50)
    assert bench.dismissed() == []
    assert bench.core.members.learners[LearnerName("ana")].connection == 50


def test_who_comes_new_is_above_the_floor() -> None:
    """Incarnations are given in order, so a newer one is let in, and counts as a rejoin."""
    bench = seeded("ana")
    with_ended(bench, 2 * NAMES_KEPT)
    last = 2 * NAMES_KEPT + 9
    bench.hello(f"worker-7f3a91c2-{last:06d}", counter=last + 1)
    assert bench.dismissed() == []
    assert bench.core.durable.rejoins == 1


def test_forgetting_lets_nobody_in_who_had_ended(seed: int) -> None:
    """Over random ends, the answer is that of a fence which forgets nothing."""
    chance, fence = random.Random(seed), Fence()
    ended: dict[LearnerName, Incarnation] = {}
    for counter in range(1, 3 * NAMES_KEPT):
        name = LearnerName(f"n{chance.randrange(2 * NAMES_KEPT)}")
        ended[name] = Incarnation(1 + counter // 5000, counter)
        fence.end(name, ended[name])
    for name in chance.sample(sorted(ended), 200):
        assert fence.ended(name, ended[name], open_account=False)
        assert not fence.ended(name, Incarnation(9, 1), open_account=False)
