"""Contributions in shares are whole once every element is here, in whatever order they come."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.protocol.errors import MalformedError
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.messages.shares import RANGES_MAX
from islands.protocol.messages.training import Contribution
from islands.protocol.ranges import Ranges, held_by, size_of
from islands.protocol.syncer.shares import ASSEMBLIES_MAX, Answer, Assemblies, Assembly
from islands.syncer.value_store import ValueStore
from messaging.codec.tensors import digest

ANA = LearnerName("ana")


def head(round_: int = 0, answer: int = 1, name: LearnerName = ANA) -> Contribution:
    """The message of the learner itself."""
    ticket = Ticket(1, round_, name, Incarnation(1, 1))
    numbers = (1, 8, 8)
    return Contribution(
        *(ticket, FragmentIndex(0), Version(1, 0), *numbers, "float32", ""), answer=answer
    )


def place(assembly: Assembly, ranges: Ranges, value: NDArray[np.float32]) -> None:
    """Do what a worker does with a share that was claimed."""
    if assembly.buffer is None:
        assembly.buffer = ValueStore.room(value.nbytes)
    payload = np.concatenate([value[start:stop] for start, stop in ranges]).view(np.uint8).data
    assert ValueStore.place(assembly.buffer, ranges, payload, digest(payload))
    assembly.placed += size_of(ranges)


@given(
    owners=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    size=st.integers(1, 100),
    seed=st.integers(0, 2**32),
    twice=st.booleans(),
)
def test_shares_in_any_order_are_the_value(
    owners: list[int], size: int, seed: int, *, twice: bool
) -> None:
    """Interleaved or not, each once or twice, and the head's first, last, or in between."""
    value, message, assemblies = np.arange(size, dtype=np.float32), head(), Assemblies()
    shares = [held_by(rank, owners, size) for rank in sorted(set(owners))]
    shares = [share for share in shares if share]
    coming = [(share, share == shares[0]) for share in shares] * (1 + twice)
    random.Random(seed).shuffle(coming)
    left, found = set(shares), None
    for share, of_head in coming:
        claimed = assemblies.claim(Answer.of(message), size, share)
        assert (claimed is not None) == (share in left), "what is held already is not claimed"
        if of_head:
            assemblies.add_head(7, message)
        if claimed is not None:
            left.remove(share)
            place(claimed, share, value)
        found = assemblies.pop_whole(Answer.of(message))
        if found is not None:
            break
    assert found is not None
    assert not left
    assert found.head == (7, message)
    assert found.buffer is not None
    np.testing.assert_array_equal(np.frombuffer(found.buffer, np.float32), value)
    assert len(assemblies) == 0


@given(
    size=st.integers(1, 30),
    many=st.lists(
        st.lists(st.tuples(st.integers(-2, 32), st.integers(-2, 32)), max_size=4), max_size=12
    ),
)
def test_no_element_is_ever_claimed_twice(size: int, many: list[list[tuple[int, int]]]) -> None:
    """Whatever ranges a hostile host makes up; a refused share changes nothing."""
    assembly, claimed = Assembly(size), np.zeros(size, int)
    for ranges in many:
        before = list(assembly.claimed)
        try:
            taken = assembly.claim(tuple(ranges))
        except MalformedError:
            assert assembly.claimed == before
            continue
        for start, stop in ranges if taken else ():
            claimed[start:stop] += 1
        assert claimed.max(initial=0) <= 1
        assert sum(stop - start for start, stop in assembly.claimed) == claimed.sum()


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ((), "it has 0 ranges"),
        (((0, 1),) * (RANGES_MAX + 1), f"may have 1 to {RANGES_MAX}"),
        (((0, 0),), r"\(0, 0\) is no range of 8 elements"),
        (((4, 9),), r"\(4, 9\) is no range of 8 elements"),
        (((-1, 2),), r"\(-1, 2\) is no range"),
        (((4, 6), (0, 2)), r"\(0, 2\) is no range of 8 elements after 6"),
        (((1, 4),), "elements that another share has, and others"),
    ],
)
def test_wrong_ranges_are_refused_in_a_sentence(ranges: Ranges, why: str) -> None:
    """Empty, too many, outside, not ascending, or partly those of another share."""
    assembly = Assembly(8)
    assert assembly.claim(((0, 2),))
    with pytest.raises(MalformedError, match=why):
        assembly.claim(ranges)
    assert assembly.claimed == [(0, 2)]


def test_many_small_shares_are_bounded() -> None:
    """All shares of a contribution together have no more ranges than one may have."""
    assembly = Assembly(4 * RANGES_MAX)
    for number in range(RANGES_MAX):
        assert assembly.claim(((2 * number, 2 * number + 1),))
    with pytest.raises(MalformedError, match=f"more than {RANGES_MAX} ranges"):
        assembly.claim(((1, 2),))


def test_a_refused_share_leaves_no_contribution_behind() -> None:
    """Memory is taken for a share that was claimed alone."""
    assemblies = Assemblies()
    with pytest.raises(MalformedError):
        assemblies.claim(Answer.of(head()), 8, ((4, 9),))
    assert len(assemblies) == 0


def test_a_share_whose_bytes_were_wrong_may_come_again() -> None:
    """Its elements are claimed by whoever sends them next."""
    assembly = Assembly(8)
    assert assembly.claim(((0, 4),))
    assert not assembly.claim(((0, 4),))
    assembly.give_back(((0, 4),))
    assert assembly.claim(((0, 4),))


def test_of_each_learner_few_are_incomplete() -> None:
    """The oldest is forgotten; those of other learners stay."""
    assemblies, zoe = Assemblies(), head(name=LearnerName("zoe"))
    assemblies.claim(Answer.of(zoe), 8, ((0, 1),))
    for number in range(ASSEMBLIES_MAX + 3):
        assert assemblies.claim(Answer.of(head(number)), 8, ((0, 1),)) is not None
    assert len(assemblies) == ASSEMBLIES_MAX + 1
    assert assemblies.claim(Answer.of(zoe), 8, ((0, 1),)) is None, "it is held"
    assert assemblies.claim(Answer.of(head(0)), 8, ((0, 1),)) is not None, "it was forgotten"
    assemblies.forget(ANA)
    assert len(assemblies) == 1


def test_two_answers_to_one_ticket_are_not_mixed() -> None:
    """A pull that is answered anew, by another snapshot, is another contribution."""
    assemblies = Assemblies()
    first = assemblies.claim(Answer.of(head(answer=1)), 8, ((0, 4),))
    second = assemblies.claim(Answer.of(head(answer=2)), 8, ((0, 4),))
    assert first is not None
    assert second is not None
    assert first is not second
