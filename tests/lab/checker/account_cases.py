"""Cases of counting: fates, tokens, the ledger, quotas, and the positions of shards."""

from dataclasses import replace

from islands.lab.checker import accounts
from islands.protocol.identities import Fate
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import Finished, Granted, LeaseReturned, Row
from tests.lab.checker.cases import (
    ANA,
    BEN,
    OF_BEN,
    ONE,
    SUPERVISOR,
    SYNCER,
    TWO,
    Case,
    Line,
    adopted,
    arrived,
    began,
    book_closed,
    by,
    fate,
    finished,
    lie,
    reported,
    resumed,
    sent,
    truth,
    wrote,
)

HONEST = [began(), sent(ONE), arrived(ONE), fate(ONE)]
RESTARTED = [*HONEST[:-1], wrote(1), resumed(2, 1)]
UNLIKE = f"{ONE} was applied with 10 tokens and never sent like that"
FATES = by(
    accounts.each_has_one_fate,
    truth(
        "one is applied, another is late and never was admitted",
        *(*HONEST, sent(TWO, 20), fate(TWO, Fate.LATE), finished()),
    ),
    lie(f"{ONE} was admitted twice", *HONEST[:3], *HONEST[2:]),
    lie(
        f"{ONE} was admitted twice",
        *(*HONEST[:3], fate(ONE, Fate.LATE), wrote(1), resumed(2, 1), arrived(ONE)),
    ),
    lie(f"{ONE} was applied without being admitted", *RESTARTED, fate(ONE), finished()),
    truth("one that was lost in a restart may have no fate", *RESTARTED, finished()),
    truth(
        "what a restart has undone may be done again",
        *(began(), wrote(1), *HONEST[1:], resumed(2, 1), arrived(ONE), fate(ONE), finished()),
    ),
    truth(
        "what a start has not taken up never was, though it names a record",
        *(*HONEST, wrote(1), (SYNCER, Started(2, resumed=False, sequence=1)), *HONEST[2:]),
    ),
    lie(f"{ONE} was applied, then late", *HONEST, fate(ONE, Fate.LATE)),
    lie(f"{ONE} was stale, then stale", *HONEST[:2], *[fate(ONE, Fate.STALE)] * 2),
    lie(UNLIKE, began(), arrived(ONE), fate(ONE)),
    lie(UNLIKE, began(), sent(ONE, 20, 20), *HONEST[2:]),
    lie(UNLIKE, *HONEST[:-1], fate(ONE, fragment=1)),
    lie(f"{ONE} was sent by somebody else", began(), sent(ONE, actor=BEN), *HONEST[2:]),
    lie(f"{ONE} was sent by somebody else", *HONEST[:2], sent(ONE, actor=BEN), *HONEST[2:]),
    lie(f"{OF_BEN} was sent by somebody else", began(), sent(OF_BEN), fate(OF_BEN, Fate.LATE)),
    truth("one waits while the run goes on", *HONEST[:-1], wrote(1)),
    lie(f"{ONE} was admitted and has no fate", *HONEST[:-1], finished()),
    lie(f"{ONE} was admitted and has no fate", *HONEST[:-1], must_finish=True),
)


def applied(ticket: str, processed: int, tokens: int, fragment: int = 0) -> list[Line]:
    name = ticket.partition("/")[0]
    return [
        sent(ticket, processed, tokens, fragment=fragment, actor=name),
        fate(ticket, tokens=tokens, fragment=fragment),
    ]


TWICE = by(
    accounts.nothing_is_applied_twice,
    truth(
        "tokens are applied once to each fragment, those of other incarnations by themselves",
        *(began(), *applied(ONE, 20, 20), *applied(TWO, 30, 10), *applied(OF_BEN, 20, 20)),
        *(*applied("ana/1.1@1:3", 20, 20, 1), *applied("ana/1.3@1:4", 20, 20)),
    ),
    lie(
        f"{TWO} applies tokens 0 to 20 to fragment 0, those to 20 are applied",
        *(began(), *applied(ONE, 20, 20), *applied(TWO, 20, 20)),
    ),
    lie(
        f"{TWO} applies tokens 20 to 30 to fragment 0, those to 40 are applied",
        "ana/1.1@1:3 applies tokens 30 to 50 to fragment 0, those to 40 are applied",
        *(began(), *applied(ONE, 40, 40), *applied(TWO, 30, 10)),
        *(*applied("ana/1.1@1:3", 50, 20), *applied("ana/1.1@1:4", 60, 10)),
    ),
    truth(
        "tokens that were late are applied later",
        *(began(), sent(ONE, 20, 20), fate(ONE, Fate.LATE, 20), *applied(TWO, 30, 30)),
    ),
    truth(
        "of two contributions under one ticket the one with the applied tokens counts",
        *(began(), sent(ONE, 50, 50), *applied(ONE, 20, 20), *applied(TWO, 30, 10)),
    ),
)

BASES = [adopted("1.0"), adopted("1.1", 10)]
STEPS = [
    *by(
        accounts.contributions_are_their_steps,
        truth(
            "learners that are not known count as they like",
            *(adopted("1.0"), sent(ONE, 30, 30), sent("eve/1.9@1:1", 7, 7, actor="eve")),
        ),
        lie(f"{ONE} counts 20 tokens for 2 steps", sent(ONE, 20, 20), batch_tokens={ANA: 11}),
        lie(f"{ONE} counts 29 tokens for 2 steps", sent(ONE, 29, 29)),
    ),
    *by(
        accounts.adoptions_discard,
        truth(
            "a contribution counts from where its base was adopted",
            *(BASES[0], adopted("1.0", fragment=1), sent(ONE), sent(ONE, fragment=1), BASES[1]),
            *(sent(TWO, 30, 20, base="1.1"), sent(TWO, 30, 30, base="1.0")),
        ),
        *(
            lie(f"{TWO} counts from {begin}, not 10", *BASES, sent(TWO, 30, 30 - begin, base="1.1"))
            for begin in (0, 9, 11)
        ),
        *(
            lie(f"{ONE} counts from 0, not None", line, sent(ONE))
            for line in (
                *(adopted("1.0", fragment=1), adopted("1.0", actor=BEN)),
                *(adopted("1.0", incarnation="1.3"), adopted("1.1")),
            )
        ),
    ),
]

BOOKS: list[Line] = [
    *(began(), reported(60), reported(40, incarnation="1.2", actor=BEN)),
    *(sent(ONE, 20, 20), fate(ONE, tokens=20)),
    *(sent(TWO, 30, 10, fragment=1), fate(TWO, Fate.LATE, fragment=1)),
    book_closed(ANA, "1.1", 60),
]
ROWS = (Row(100, 20, 0, 0, 0, 70, 10, 0), Row(100, 0, 0, 10, 0, 60, 30, 0))
OPEN = {"ben/1.2": 40}


def booked(index: int, **fields: int) -> list[Line]:
    """The books, with a ledger that has another row."""
    rows = list(ROWS)
    rows[index] = replace(rows[index], **fields)
    return [*BOOKS, finished(*rows, processed=OPEN)]


def moved(index: int, **fields: int) -> list[Line]:
    """The same, with so many overwritten tokens that the row balances."""
    row = replace(ROWS[index], **fields)
    return booked(index, **fields, overwritten=row.overwritten + row.imbalance)


def of_budget(reason: str = "tokens") -> list[Line]:
    return [*BOOKS, finished(*ROWS, reason=reason, processed=OPEN)]


def row(processed: int, lost: int = 0, **fates: int) -> Row:
    """A row whose other tokens are overwritten."""
    found = replace(Row(processed, 0, 0, 0, 0, 0, lost, 0), **fates)
    return replace(found, overwritten=found.imbalance)


NEGATIVE = Row(60, 0, 61, 0, 0, -1, 0, 0)
BUDGET = {"batch_tokens": {ANA: 10, BEN: 5}}
OTHER_TOTAL = "fragment 0: processed 100, applied 20, the ledger has 110 and 20"
LEDGER = by(
    accounts.ledger_balances,
    truth(
        "a run that is over, and nobody says with which ledger",
        *(*BOOKS[:-1], book_closed(ANA, "1.1", 7), (SYNCER, Finished("drained"))),
    ),
    truth("a run that is not over", *BOOKS),
    truth("a run without a budget whose tokens were used up", *of_budget()),
    truth(
        "of an ended incarnation the syncer knew an earlier count, or none",
        *(
            began(),
            reported(30),
            reported(60),
            book_closed(ANA, "1.1", 30),
            book_closed(BEN, "1.2"),
        ),
        *(reported(20, incarnation="1.3"), book_closed(ANA, "1.3"), finished(row(30, 30))),
    ),
    *(
        lie(
            "ana/1.1 never knew of 20 tokens",
            *(began(), *known, book_closed(ANA, "1.1", 20), finished(row(20, 20))),
        )
        for known in ([reported(30)], [])
    ),
    *(
        lie(
            f"ben/1.2 processed 40 tokens, the ledger has {tokens}",
            *(began(), *(reported(known, incarnation="1.2", actor=BEN) for known in (30, 40))),
            finished(row(tokens), processed={"ben/1.2": tokens}),
        )
        for tokens in (30, 50)
    ),
    lie(
        "eve/1.9 processed 0 tokens, the ledger has 5",
        *(began(), finished(row(5), processed={"eve/1.9": 5})),
    ),
    truth("the last ledger counts", *booked(0, applied=21), finished(*ROWS, processed=OPEN)),
    *(
        lie(
            f"fragment 1: the ledger differs by {tokens} tokens: "
            f"{replace(ROWS[1], overwritten=60 - tokens)}",
            *booked(1, overwritten=60 - tokens),
        )
        for tokens in (1, -1)
    ),
    lie("fragment 0: 10 tokens are pending at the end", *moved(0, pending=10)),
    lie(OTHER_TOTAL, *moved(0, processed=110), (SUPERVISOR, Finished("drained"))),
    lie(
        "fragment 0: processed 60, applied 30, the ledger has 60 and 20",
        *(began(), reported(60), *applied(ONE, 20, 20), *applied(TWO, 30, 10)),
        finished(row(60, applied=20), processed={"ana/1.1": 60}),
    ),
    lie("fragment 1: processed 100, applied 0, the ledger has 100 and 10", *moved(1, applied=10)),
    *(
        lie(f"fragment 0: 1 tokens are {name}, that is more than was sent", *moved(0, **{name: 1}))
        for name in ("rejected", "late", "stale")
    ),
    lie("fragment 1: 11 tokens are late, that is more than was sent", *moved(1, late=11)),
    truth(
        "several were rejected and stale, and some was contributed again",
        *(began(), reported(60), sent(ONE, 20, 20), fate(ONE, Fate.REJECTED, 20)),
        *(sent(TWO, 30, 10), fate(TWO, Fate.REJECTED), sent("ana/1.1@1:3", 60, 20)),
        *(fate("ana/1.1@1:3", Fate.STALE, 20),),
        finished(row(60, rejected=30, stale=10), processed={"ana/1.1": 60}),
    ),
    *(
        lie(
            "fragment 0: a fate has less than no tokens: "
            f"{replace(ROWS[0], **{name: -1}, overwritten=ROWS[0].overwritten + extra)}",
            *moved(0, **{name: -1}),
        )
        for name, extra in (("rejected", 1), ("late", 1), ("stale", 1), ("lost", 11))
    ),
    lie(
        f"fragment 0: a fate has less than no tokens: {NEGATIVE}",
        *(began(), reported(60), sent(ONE, 20, 20), fate(ONE, Fate.REJECTED, 20)),
        *(sent(TWO, 60, 50), fate(TWO, Fate.REJECTED, 50)),
        finished(NEGATIVE, processed={"ana/1.1": 60}),
    ),
    truth("as much is lost as the ended had that was not applied", *moved(0, lost=40)),
    lie("fragment 0: 41 tokens are lost, more than ended incarnations had", *moved(0, lost=41)),
    truth("what was applied to another fragment can be lost", *moved(1, lost=60)),
    lie("fragment 1: 61 tokens are lost, more than ended incarnations had", *moved(1, lost=61)),
    truth(
        "what others applied does not lessen what the ended can lose",
        *(began(), reported(60), book_closed(ANA, "1.1", 60)),
        *(reported(40, incarnation="1.2", actor=BEN), *applied(OF_BEN, 40, 40)),
        finished(row(100, 60, applied=40), processed=OPEN),
    ),
    *(truth(f"of {most}", *of_budget(), budget_tokens=most, **BUDGET) for most in (100, 109)),
    *(
        lie(f"100 of {most} tokens were processed", *of_budget(), budget_tokens=most, **BUDGET)
        for most in (110, 99)
    ),
    truth("another reason ended it", *of_budget("drained"), budget_tokens=500, **BUDGET),
)


# --- leases ---------------------------------------------------------------------------------------


def granted(
    quota: int, *leases: tuple[int, int, int], name: str = ANA, incarnation: str = "1.1"
) -> Line:
    return SYNCER, Granted(name, incarnation, quota, list(leases))


def to_ben(quota: int, *leases: tuple[int, int, int]) -> Line:
    return granted(quota, *leases, name=BEN, incarnation="1.2")


def returned(shard: int, position: int) -> Line:
    return SYNCER, LeaseReturned(ANA, 0, shard, position)


ALL_ENDED = [
    *(began(), granted(50), to_ben(50), book_closed(ANA, "1.1", 20), book_closed(BEN, "1.2", 10)),
]
QUOTAS = by(
    accounts.quotas_are_kept,
    truth(
        "no incarnation does more than its last quota",
        *(began(), granted(20), to_ben(10), granted(30), reported(30)),
        reported(10, incarnation="1.2", actor=BEN),
        budget_tokens=40,
    ),
    lie(
        "('ana', (1, 1)) processed 21 tokens, granted were 20",
        *(began(), granted(20), reported(10), reported(21)),
    ),
    lie(
        "('ana', (1, 1)) processed 30 tokens, granted were 20",
        *(began(), granted(20), reported(10), sent(ONE, 30, 30)),
    ),
    lie(
        "('ana', (1, 2)) processed 10 tokens, granted were 0",
        *(began(), reported(0), reported(10, incarnation="1.2")),
    ),
    lie(
        "101 tokens are given out at 2.000 s",
        *(began(), granted(50), to_ben(51), granted(60)),
        budget_tokens=100,
    ),
    truth("what the ended left", *ALL_ENDED, granted(70, incarnation="1.3"), budget_tokens=100),
    lie(
        "101 tokens are given out at 5.000 s",
        *(*ALL_ENDED, granted(71, incarnation="1.3")),
        budget_tokens=100,
    ),
    truth("a run without a budget gives out what it likes", began(), granted(10**9)),
)

FIRST, LATER = (0, 1, 0), (1, 1, 0)
HOLDS = [began(), granted(9, FIRST)]
READ = [*HOLDS, reported(9, (0, 1, 5))]
RETURNED = [*READ, book_closed(ANA, "1.1", 9), returned(1, 5)]
NEXT = [*RETURNED, granted(9, (0, 1, 5), incarnation="1.3"), book_closed(ANA, "1.3")]
GIVEN_UP = "shard (0, 1) was given up by ('ana', (1, 1)) at {}"
NOBODYS = "shard (0, 1) was returned by ana, and None had it"
HELD = "shard (0, 1) was returned by ana, and ('ana', (1, 1)) had it"
SHARDS = by(
    accounts.shards_are_read_on,
    truth(
        "a shard goes on where its last holder was read to, and is read to its end",
        *(began(), granted(9, FIRST, (0, 2, 0)), reported(9, (0, 1, 5), (0, 2, 3))),
        *(book_closed(ANA, "1.1", 9), returned(1, 5), returned(2, 2)),
        *(to_ben(9, (0, 1, 5), (0, 2, 2)), reported(9, (0, 1, 8), incarnation="1.2", actor=BEN)),
        to_ben(19, (0, 2, 2), LATER),
    ),
    truth(
        "a grant repeats what its learner holds, at a later position",
        *(*READ, granted(19, (0, 1, 4), (0, 2, 0))),
    ),
    lie("shard (0, 1) went to ('ben', (1, 2)), ('ana', (1, 1)) has it", *HOLDS, to_ben(9, FIRST)),
    lie(
        "shard (0, 1) went to ('ana', (1, 3)), ('ana', (1, 1)) has it",
        *(*HOLDS, granted(9, FIRST, incarnation="1.3")),
    ),
    *(
        lie(
            f"shard (0, 1) goes on at {position} for ('ben', (1, 2)), it was read to 5",
            *(*RETURNED, to_ben(9, (0, 1, position))),
        )
        for position in (0, 4, 6)
    ),
    lie(
        "shard (0, 1) goes on at 1 for ('ana', (1, 1)), it was read to 0",
        *(began(), granted(9, (0, 1, 1))),
    ),
    lie(
        "shard (0, 1) goes on at 0 for ('ana', (1, 1)), it was read to 8",
        "shard (1, 1) was given up by ('ana', (1, 1)) at 0",
        *(*HOLDS, reported(9, (0, 1, 8)), granted(9, LATER), granted(9, FIRST)),
    ),
    lie(NOBODYS, began(), book_closed(ANA, "1.1"), returned(1, 0)),
    lie(NOBODYS, began(), returned(1, 0)),
    lie(HELD, *HOLDS, returned(1, 0)),
    lie(HELD, *HOLDS, book_closed(BEN, "1.2"), returned(1, 0)),
    lie(
        "shard (0, 1) was returned at 6, ('ana', (1, 1)) did not read to there",
        *(*READ, reported(9, (0, 1, 4)), book_closed(ANA, "1.1", 9), returned(1, 6)),
    ),
    lie(
        "shard (0, 1) was returned at 4, ('ana', (1, 3)) began behind that",
        *(*NEXT, returned(1, 4), to_ben(9, (0, 1, 4))),
    ),
    truth(
        "a shard is returned from where its holder began, which read nothing",
        *(*NEXT, returned(1, 5), to_ben(9, (0, 1, 5))),
    ),
    lie(
        *(GIVEN_UP.format(0), NOBODYS),
        *(*HOLDS, book_closed(ANA, "1.1"), arrived("ben/1.2@1:1"), returned(1, 0)),
    ),
    lie(NOBODYS, *HOLDS, book_closed(ANA, "1.1"), returned(1, 0), returned(1, 0)),
    lie(
        GIVEN_UP.format(7),
        *(began(), granted(9, FIRST, (0, 2, 0)), reported(9, (0, 1, 7), (0, 2, 8))),
        *(book_closed(ANA, "1.1", 9), finished()),
    ),
    lie(GIVEN_UP.format(0), *HOLDS, book_closed(ANA, "1.1")),
    lie(GIVEN_UP.format(7), *HOLDS, reported(9, (0, 1, 7)), granted(9, (0, 2, 0))),
    truth("another's grant leaves out what one holds", *HOLDS, to_ben(9, (0, 2, 0))),
)

CASES: list[Case] = [*FATES, *TWICE, *STEPS, *LEDGER, *QUOTAS, *SHARDS]
