"""The neighbours of a learner in a round: a pure function of seed, round and roster.

Two learners with the same roster of the supervisor compute the same pairs. While rosters differ, an
offer may reach a learner that has another partner in that round, and declines it.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import assert_never

from islands.protocol.settings.choices import Neighbours
from islands.protocol.settings.gossip import GossipSettings


def neighbours_of(
    name: str,
    settings: GossipSettings,
    *,
    seed: int,
    round_: int,
    cycle: int,
    roster: Iterable[str],
) -> tuple[str, ...]:
    """Return the names of a learner's neighbours in a round, in order; empty if it rests.

    `cycle` counts the rounds of this fragment before it. The learner itself takes part whether it
    is in the roster or not.
    """
    names = sorted({*roster, name})
    every = settings.everyone_every
    if settings.on and every is not None and cycle % (every + 1) == every:
        return tuple(other for other in names if other != name)
    match settings.neighbours:
        case Neighbours.NOBODY:
            return ()
        case Neighbours.RANDOM_PAIRS:
            pairs = random_pairs(names, seed=seed, round_=round_)
            return tuple(other for pair in pairs if name in pair for other in pair if other != name)
        case Neighbours.RING:
            return ring(name, names)
        case Neighbours.GRAPH:
            present = dict.fromkeys(names)
            return tuple(one for one in settings.lines.get(name, ()) if one in present)
        case _:
            assert_never(settings.neighbours)


def random_pairs(names: Iterable[str], *, seed: int, round_: int) -> tuple[tuple[str, str], ...]:
    """Pair all names at random, by the order of keyed digests; of an odd number one rests."""

    def drawn(name: str) -> bytes:
        return blake2b(f"{seed}/{round_}/{name}".encode(), digest_size=16).digest()

    order = sorted(names, key=lambda name: (drawn(name), name))
    return tuple(zip(order[::2], order[1::2], strict=False))


def ring(name: str, names: list[str]) -> tuple[str, ...]:
    """Return those before and after a name in a ring of sorted names; one of two, none alone."""
    index, size = names.index(name), len(names)
    return tuple(sorted({names[index - 1], names[(index + 1) % size]} - {name}))
