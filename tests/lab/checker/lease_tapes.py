"""Tapes about leases: quotas, and the positions of shards."""

from islands.lab.checker import accounts
from islands.protocol.tape.round_entries import Granted, LeaseReturned
from tests.lab.checker.account_tapes import ended, finished
from tests.lab.checker.told import (
    ANA,
    BEN,
    SYNCER,
    Tape,
    Told,
    arrived,
    began,
    by,
    reported,
    sent,
    told,
)

ONE = "ana/1.1@1:1"


def granted(
    quota: int, *leases: tuple[int, int, int], name: str = ANA, incarnation: str = "1.1"
) -> Told:
    return SYNCER, Granted(name, incarnation, quota, list(leases))


def returned(shard: int, position: int, name: str = ANA, pass_index: int = 0) -> Told:
    return SYNCER, LeaseReturned(name, pass_index, shard, position)


FIRST, LATER = (0, 1, 0), (1, 1, 0)
QUOTAS = by(
    accounts.quotas_are_kept,
    told(
        "no incarnation does more than its last quota",
        [
            *(began(), granted(20), granted(10, name=BEN, incarnation="1.2"), granted(30)),
            *(reported(30), reported(10, incarnation="1.2", actor=BEN)),
        ],
        budget_tokens=40,
    ),
    told(
        "one does more than its quota",
        [began(), granted(20), reported(10), reported(21)],
        "('ana', (1, 1)) processed 21 tokens, granted were 20",
    ),
    told(
        "one contributes more than its quota",
        [began(), granted(20), reported(10), sent(ONE, 30, 30)],
        "('ana', (1, 1)) processed 30 tokens, granted were 20",
    ),
    told(
        "one steps without a quota, and none without one stands still",
        [began(), reported(0), reported(10, incarnation="1.2")],
        "('ana', (1, 2)) processed 10 tokens, granted were 0",
    ),
    told(
        "quotas exceed the budget, which is told once",
        [began(), granted(50), granted(51, name=BEN, incarnation="1.2"), granted(60)],
        "101 tokens are given out at 2.000 s",
        budget_tokens=100,
    ),
    told(
        "what the ended did not use is given out again",
        [
            *(began(), granted(50), granted(50, name=BEN, incarnation="1.2")),
            *(ended(ANA, "1.1", 20), ended(BEN, "1.2", 10), granted(70, incarnation="1.3")),
        ],
        budget_tokens=100,
    ),
    told(
        "more is given out than the ended left",
        [
            *(began(), granted(50), granted(50, name=BEN, incarnation="1.2")),
            *(ended(ANA, "1.1", 20), ended(BEN, "1.2", 10), granted(71, incarnation="1.3")),
        ],
        "101 tokens are given out at 5.000 s",
        budget_tokens=100,
    ),
    told("a run without a budget gives out what it likes", [began(), granted(10**9)]),
)

SHARDS = by(
    accounts.shards_are_read_on,
    told(
        "a shard goes on where its last holder was read to, and is read to its end",
        [
            *(began(), granted(9, (0, 1, 0), (0, 2, 0)), reported(9, (0, 1, 5), (0, 2, 3))),
            *(ended(ANA, "1.1", 9), returned(1, 5), returned(2, 2)),
            *(granted(9, (0, 1, 5), (0, 2, 2), name=BEN, incarnation="1.2"),),
            *(reported(9, (0, 1, 8), incarnation="1.2", actor=BEN),),
            *(granted(19, (0, 2, 2), (1, 1, 0), name=BEN, incarnation="1.2"),),
        ],
    ),
    told(
        "a grant repeats what its learner holds, at a later position",
        [began(), granted(9, FIRST), reported(9, (0, 1, 5)), granted(19, (0, 1, 4), (0, 2, 0))],
    ),
    told(
        "a shard has two holders",
        [began(), granted(9, FIRST), granted(9, FIRST, name=BEN, incarnation="1.2")],
        "shard (0, 1) went to ('ben', (1, 2)), ('ana', (1, 1)) has it",
    ),
    told(
        "a shard has two holders, and the earlier name got it later",
        [began(), granted(9, FIRST, name=BEN, incarnation="1.2"), granted(9, FIRST)],
        "shard (0, 1) went to ('ana', (1, 1)), ('ben', (1, 2)) has it",
    ),
    told(
        "a shard is returned from the farthest place that was ever reported",
        [
            *(began(), granted(9, FIRST), reported(9, (0, 1, 5)), reported(9, (0, 1, 4))),
            *(ended(ANA, "1.1", 9), returned(1, 5)),
        ],
    ),
    told(
        "another incarnation of its holder has a shard",
        [began(), granted(9, FIRST), granted(9, FIRST, incarnation="1.3")],
        "shard (0, 1) went to ('ana', (1, 3)), ('ana', (1, 1)) has it",
    ),
    *(
        told(
            f"a shard that was read to 5 goes on at {position}",
            [
                *(began(), granted(9, FIRST), reported(9, (0, 1, 5)), ended(ANA, "1.1", 9)),
                *(returned(1, 5), granted(9, (0, 1, position), name=BEN, incarnation="1.2")),
            ],
            f"shard (0, 1) goes on at {position} for ('ben', (1, 2)), it was read to 5",
        )
        for position in (0, 4, 6, 8)
    ),
    told(
        "a shard does not begin at its begin",
        [began(), granted(9, (0, 1, 1))],
        "shard (0, 1) goes on at 1 for ('ana', (1, 1)), it was read to 0",
    ),
    told(
        "a shard that was read to its end is read again in the same pass",
        [began(), granted(9, FIRST), reported(9, (0, 1, 8)), granted(9, LATER), granted(9, FIRST)],
        "shard (0, 1) goes on at 0 for ('ana', (1, 1)), it was read to 8",
        "shard (1, 1) was given up by ('ana', (1, 1)) at 0",
    ),
    told(
        "a shard is returned by one who did not have it",
        [began(), ended(ANA, "1.1", 0), returned(1, 0)],
        "shard (0, 1) was returned by ana, and None had it",
    ),
    told(
        "a shard is returned while its holder has not ended",
        [began(), granted(9, FIRST), returned(1, 0)],
        "shard (0, 1) was returned by ana, and ('ana', (1, 1)) had it",
    ),
    told(
        "a shard is returned as another one ends",
        [began(), granted(9, FIRST), ended(BEN, "1.2", 0), returned(1, 0)],
        "shard (0, 1) was returned by ana, and ('ana', (1, 1)) had it",
    ),
    told(
        "a shard is returned from beyond what was read",
        [
            *(began(), granted(9, FIRST), reported(9, (0, 1, 5)), reported(9, (0, 1, 4))),
            *(ended(ANA, "1.1", 9), returned(1, 6)),
        ],
        "shard (0, 1) was returned at 6, ('ana', (1, 1)) did not read to there",
    ),
    told(
        "a shard is returned from before where its holder began",
        [
            *(began(), granted(9, FIRST), reported(9, (0, 1, 5)), ended(ANA, "1.1", 9)),
            *(returned(1, 5), granted(9, (0, 1, 5), incarnation="1.3"), ended(ANA, "1.3", 0)),
            *(returned(1, 4), granted(9, (0, 1, 4), name=BEN, incarnation="1.2")),
        ],
        "shard (0, 1) was returned at 4, ('ana', (1, 3)) began behind that",
    ),
    told(
        "a shard is returned from where its holder began, which read nothing",
        [
            *(began(), granted(9, FIRST), reported(9, (0, 1, 5)), ended(ANA, "1.1", 9)),
            *(returned(1, 5), granted(9, (0, 1, 5), incarnation="1.3"), ended(ANA, "1.3", 0)),
            *(returned(1, 5), granted(9, (0, 1, 5), name=BEN, incarnation="1.2")),
        ],
    ),
    told(
        "a shard is returned that nobody had, and nobody ended",
        [began(), returned(1, 0)],
        "shard (0, 1) was returned by ana, and None had it",
    ),
    told(
        "a shard is returned a while after its holder ended",
        [began(), granted(9, FIRST), ended(ANA, "1.1", 0), arrived("ben/1.2@1:1"), returned(1, 0)],
        "shard (0, 1) was given up by ('ana', (1, 1)) at 0",
        "shard (0, 1) was returned by ana, and None had it",
    ),
    told(
        "a shard is returned twice",
        [began(), granted(9, FIRST), ended(ANA, "1.1", 0), returned(1, 0), returned(1, 0)],
        "shard (0, 1) was returned by ana, and None had it",
    ),
    told(
        "one that ends does not return what it has not read",
        [
            *(began(), granted(9, FIRST, (0, 2, 0)), reported(9, (0, 1, 7), (0, 2, 8))),
            *(ended(ANA, "1.1", 9), finished()),
        ],
        "shard (0, 1) was given up by ('ana', (1, 1)) at 7",
    ),
    told(
        "one that ends as the tape ends does not return what it has not read",
        [began(), granted(9, FIRST), ended(ANA, "1.1", 0)],
        "shard (0, 1) was given up by ('ana', (1, 1)) at 0",
    ),
    told(
        "a later grant leaves out what was not read to its end",
        [began(), granted(9, FIRST), reported(9, (0, 1, 7)), granted(9, (0, 2, 0))],
        "shard (0, 1) was given up by ('ana', (1, 1)) at 7",
    ),
    told(
        "another's grant leaves out what one holds",
        [began(), granted(9, FIRST), granted(9, (0, 2, 0), name=BEN, incarnation="1.2")],
    ),
)

TAPES: list[Tape] = [*QUOTAS, *SHARDS]
