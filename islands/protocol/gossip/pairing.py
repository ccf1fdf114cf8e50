"""The neighbours of a learner in a round: a pure function of seed, round and roster.

Nobody assigns pairs. Every learner computes them from the roster that the supervisor tells, so two
learners with the same roster agree. For a moment rosters may differ: then a learner's offer may
reach one that has another partner in that round, which declines it; the asker steps on, and the
next round is drawn anew.
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

    Args:
        name: of the learner.
        settings: of gossip.
        seed: of the run.
        round_: number of the round.
        cycle: how many rounds of this round's fragment came before it.
        roster: names of all present learners; `name` takes part whether it is among them or not.
    """
    names = sorted({*roster, name})
    every = settings.everyone_every
    if settings.on and every is not None and cycle % (every + 1) == every:
        return tuple(other for other in names if other != name)
    match settings.neighbours:
        case Neighbours.NOBODY:
            return ()
        case Neighbours.RANDOM_PAIRS:
            return tuple(
                other
                for pair in random_pairs(names, seed=seed, round_=round_)
                if name in pair
                for other in pair
                if other != name
            )
        case Neighbours.RING:
            return ring(name, names)
        case Neighbours.GRAPH:
            present = dict.fromkeys(names)
            return tuple(one for one in settings.lines.get(name, ()) if one in present)
        case _:
            assert_never(settings.neighbours)


def random_pairs(names: Iterable[str], *, seed: int, round_: int) -> tuple[tuple[str, str], ...]:
    """Pair all names at random; of an odd number one rests.

    Names are ordered by a keyed digest, and each takes its neighbour in that order: every matching
    is as likely as any other, and the order of the names given does not matter.
    """

    def place(name: str) -> bytes:
        return blake2b(f"{seed}/{round_}/{name}".encode(), digest_size=16).digest()

    order = sorted(names, key=lambda name: (place(name), name))
    return tuple(zip(order[::2], order[1::2], strict=False))


def ring(name: str, names: list[str]) -> tuple[str, ...]:
    """Return those before and after a name in a ring of sorted names; one of two, none alone."""
    place, size = names.index(name), len(names)
    beside = {names[place - 1], names[(place + 1) % size]} - {name}
    return tuple(sorted(beside))
