"""Tapes about counting: fates, tokens, and the ledger."""

from dataclasses import replace

from islands.lab.checker import accounts
from islands.protocol.identities import Fate
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import (
    BookClosed,
    Finished,
    Row,
)
from tests.lab.checker.told import (
    ANA,
    BEN,
    SUPERVISOR,
    SYNCER,
    Tape,
    Told,
    adopted,
    arrived,
    began,
    by,
    fate,
    reported,
    resumed,
    sent,
    told,
    wrote,
)

ONE, TWO, OF_BEN = "ana/1.1@1:1", "ana/1.1@1:2", "ben/1.2@1:1"
NO_ROW = Row(0, 0, 0, 0, 0, 0, 0, 0)


def finished(
    *ledger: Row, reason: str = "drained", processed: dict[str, int] | None = None
) -> Told:
    return SYNCER, Finished(reason, list(ledger), processed)


def ended(name: str, incarnation: str, processed: int) -> Told:
    return SYNCER, BookClosed(name, incarnation, processed)


FATES = by(
    accounts.each_has_one_fate,
    told(
        "an admitted contribution is applied, another is late and never was admitted",
        [
            *(began(), sent(ONE), arrived(ONE), fate(ONE)),
            *(sent(TWO, 20), fate(TWO, Fate.LATE), finished()),
        ],
    ),
    told(
        "a contribution is admitted twice",
        [began(), sent(ONE), arrived(ONE), arrived(ONE), fate(ONE)],
        f"{ONE} was admitted twice",
    ),
    told(
        "one that has its fate is admitted again after a restart",
        [
            *(began(), sent(ONE), arrived(ONE), fate(ONE, Fate.LATE), wrote(1)),
            *(resumed(2, 1), arrived(ONE)),
        ],
        f"{ONE} was admitted twice",
    ),
    told(
        "one that was lost in a restart has no fate, and is not admitted any more",
        [began(), sent(ONE), arrived(ONE), wrote(1), resumed(2, 1), fate(ONE), finished()],
        f"{ONE} was applied without being admitted",
    ),
    told(
        "one that was lost in a restart may have no fate",
        [began(), sent(ONE), arrived(ONE), wrote(1), resumed(2, 1), finished()],
    ),
    told(
        "what a restart has undone may be done again",
        [
            *(began(), wrote(1), sent(ONE), arrived(ONE), fate(ONE), resumed(2, 1)),
            *(arrived(ONE), fate(ONE), finished()),
        ],
    ),
    told(
        "what a start has not taken up never was, though it names a record",
        [
            *(began(), sent(ONE), arrived(ONE), fate(ONE), wrote(1)),
            *((SYNCER, Started(2, resumed=False, sequence=1)), arrived(ONE), fate(ONE)),
        ],
    ),
    told(
        "a contribution has two fates",
        [began(), sent(ONE), arrived(ONE), fate(ONE), fate(ONE, Fate.LATE)],
        f"{ONE} was applied, then late",
    ),
    told(
        "a contribution has one fate twice",
        [began(), sent(ONE), fate(ONE, Fate.STALE), fate(ONE, Fate.STALE)],
        f"{ONE} was stale, then stale",
    ),
    told(
        "a contribution is applied that nobody sent",
        [began(), arrived(ONE), fate(ONE)],
        f"{ONE} was applied with 10 tokens and never sent like that",
    ),
    told(
        "a contribution is late that nobody sent",
        [began(), fate(ONE, Fate.LATE)],
        f"{ONE} was late with 10 tokens and never sent like that",
    ),
    told(
        "fewer tokens are applied than were sent",
        [began(), sent(ONE, 20, 20), arrived(ONE), fate(ONE)],
        f"{ONE} was applied with 10 tokens and never sent like that",
    ),
    told(
        "a contribution is applied to another fragment",
        [began(), sent(ONE), arrived(ONE), fate(ONE, fragment=1)],
        f"{ONE} was applied with 10 tokens and never sent like that",
    ),
    told(
        "a learner sends with another's ticket",
        [began(), sent(ONE, actor=BEN), arrived(ONE), fate(ONE)],
        f"{ONE} was sent by somebody else",
    ),
    told(
        "another learner sends with a later name's ticket",
        [began(), sent(OF_BEN), fate(OF_BEN, Fate.LATE)],
        f"{OF_BEN} was sent by somebody else",
    ),
    told(
        "two learners send with one ticket",
        [began(), sent(ONE), sent(ONE, actor=BEN), arrived(ONE), fate(ONE)],
        f"{ONE} was sent by somebody else",
    ),
    told(
        "a contribution is applied that was not admitted",
        [began(), sent(ONE), fate(ONE)],
        f"{ONE} was applied without being admitted",
    ),
    told(
        "a contribution waits while the run goes on", [began(), sent(ONE), arrived(ONE), wrote(1)]
    ),
    told(
        "the run is over and a contribution waits",
        [began(), sent(ONE), arrived(ONE), finished()],
        f"{ONE} was admitted and has no fate",
    ),
    told(
        "the run should be over and a contribution waits",
        [began(), sent(ONE), arrived(ONE)],
        f"{ONE} was admitted and has no fate",
        must_finish=True,
    ),
)


def applied(ticket: str, processed: int, tokens: int, fragment: int = 0) -> list[Told]:
    name = ticket.partition("/")[0]
    return [
        sent(ticket, processed, tokens, fragment=fragment, actor=name),
        fate(ticket, tokens=tokens, fragment=fragment),
    ]


TWICE = by(
    accounts.nothing_is_applied_twice,
    told(
        "tokens are applied once to each fragment, those of other incarnations by themselves",
        [
            *(began(), *applied(ONE, 20, 20), *applied(TWO, 30, 10)),
            *(*applied("ana/1.1@1:3", 20, 20, 1), *applied("ana/1.3@1:4", 20, 20)),
            *applied(OF_BEN, 20, 20),
        ],
    ),
    told(
        "tokens are applied again",
        [began(), *applied(ONE, 20, 20), *applied(TWO, 20, 20)],
        f"{TWO} applies tokens 0 to 20 to fragment 0, those to 20 are applied",
    ),
    told(
        "one step's tokens are applied again, and later others",
        [
            *(began(), *applied(ONE, 40, 40), *applied(TWO, 30, 10)),
            *(*applied("ana/1.1@1:3", 50, 20), *applied("ana/1.1@1:4", 60, 10)),
        ],
        f"{TWO} applies tokens 20 to 30 to fragment 0, those to 40 are applied",
        "ana/1.1@1:3 applies tokens 30 to 50 to fragment 0, those to 40 are applied",
    ),
    told(
        "tokens that were late are applied later",
        [began(), sent(ONE, 20, 20), fate(ONE, Fate.LATE, 20), *applied(TWO, 30, 30)],
    ),
    told(
        "of two contributions under one ticket the one with the applied tokens counts",
        [began(), sent(ONE, 50, 50), *applied(ONE, 20, 20), *applied(TWO, 30, 10)],
    ),
)

STEPS = [
    *by(
        accounts.contributions_are_their_steps,
        told(
            "a contribution counts its steps, others than these learners are not known",
            [adopted("1.0"), sent(ONE, 30, 30), sent("eve/1.9@1:1", 7, 7, actor="eve")],
        ),
        *(
            told(
                f"a contribution counts {tokens} tokens",
                [sent(ONE, tokens, tokens)],
                f"{ONE} counts {tokens} tokens for 2 steps",
                batch_tokens={ANA: batch_tokens},
            )
            for tokens, batch_tokens in ((20, 11), (29, 10))
        ),
    ),
    *by(
        accounts.adoptions_discard,
        told(
            "a contribution counts from where its base was adopted",
            [
                *(adopted("1.0"), adopted("1.0", fragment=1), sent(ONE), sent(ONE, fragment=1)),
                *(adopted("1.1", 10), sent(TWO, 30, 20, base="1.1"), sent(TWO, 30, 30, base="1.0")),
            ],
        ),
        *(
            told(
                f"a contribution counts from {begin}",
                [adopted("1.0"), adopted("1.1", 10), sent(TWO, 30, 30 - begin, base="1.1")],
                f"{TWO} counts from {begin}, not 10",
            )
            for begin in (0, 9, 11, 20)
        ),
        *(
            told(
                f"a contribution has a base that {who} never adopted",
                [line, sent(ONE)],
                f"{ONE} counts from 0, not None",
            )
            for who, line in (
                ("its fragment", adopted("1.0", fragment=1)),
                ("its learner", adopted("1.0", actor=BEN)),
                ("its incarnation", adopted("1.0", incarnation="1.3")),
                ("so far anybody", adopted("1.1")),
            )
        ),
    ),
]

BOOKS: list[Told] = [
    *(began(), reported(60), reported(40, incarnation="1.2", actor=BEN)),
    *(sent(ONE, 20, 20), fate(ONE, tokens=20)),
    *(sent(TWO, 30, 10, fragment=1), fate(TWO, Fate.LATE, fragment=1)),
]
ROWS = (Row(100, 20, 0, 0, 0, 70, 10, 0), Row(100, 0, 0, 10, 0, 60, 30, 0))
OPEN = {"ben/1.2": 40}
RIGHT = [*BOOKS, ended(ANA, "1.1", 60), finished(*ROWS, processed=OPEN)]


def booked(index: int, **fields: int) -> list[Told]:
    """The same run, whose ledger has another row."""
    rows = list(ROWS)
    rows[index] = replace(rows[index], **fields)
    return [*RIGHT[:-1], finished(*rows, processed=OPEN)]


def moved(index: int, **fields: int) -> list[Told]:
    """The same, with so many overwritten tokens that the row balances."""
    row = replace(ROWS[index], **fields)
    return booked(index, **fields, overwritten=row.overwritten + row.imbalance)


def of_budget(budget: int, reason: str = "tokens") -> tuple[list[Told], int]:
    return [*RIGHT[:-1], finished(*ROWS, reason=reason, processed=OPEN)], budget


LEDGER = by(
    accounts.ledger_balances,
    told("a ledger is as it is recounted", RIGHT),
    told(
        "a run that is over, and nobody says with which ledger",
        [*BOOKS, ended(ANA, "1.1", 7), (SYNCER, Finished("drained"))],
    ),
    told("a run that is not over", BOOKS),
    told("a run without a budget whose tokens were used up", of_budget(0)[0]),
    told(
        "of an ended incarnation the syncer knew an earlier count, or none",
        [
            *(began(), reported(30), reported(60), ended(ANA, "1.1", 30), ended(BEN, "1.2", 0)),
            *(reported(20, incarnation="1.3"), ended(ANA, "1.3", 0)),
            finished(Row(30, 0, 0, 0, 0, 0, 30, 0)),
        ],
    ),
    told(
        "of an ended incarnation the syncer has a count that it never had",
        [began(), reported(30), ended(ANA, "1.1", 20), finished(Row(20, 0, 0, 0, 0, 0, 20, 0))],
        "ana/1.1 never knew of 20 tokens",
    ),
    told(
        "of one that never reported the syncer has a count",
        [began(), ended(ANA, "1.1", 20), finished(Row(20, 0, 0, 0, 0, 0, 20, 0))],
        "ana/1.1 never knew of 20 tokens",
    ),
    *(
        told(
            f"the ledger has {tokens} tokens of one that did 40",
            [
                *(began(), reported(30, incarnation="1.2", actor=BEN)),
                *(reported(40, incarnation="1.2", actor=BEN),),
                finished(Row(tokens, 0, 0, 0, 0, tokens, 0, 0), processed={"ben/1.2": tokens}),
            ],
            f"ben/1.2 processed 40 tokens, the ledger has {tokens}",
        )
        for tokens in (30, 50)
    ),
    told(
        "the ledger has tokens of one that nobody heard of",
        [began(), finished(Row(5, 0, 0, 0, 0, 5, 0, 0), processed={"eve/1.9": 5})],
        "eve/1.9 processed 0 tokens, the ledger has 5",
    ),
    told("the last ledger counts", [*booked(0, applied=21), finished(*ROWS, processed=OPEN)]),
    *(
        told(
            f"a row is off by {tokens}",
            booked(1, overwritten=60 - tokens),
            f"fragment 1: the ledger differs by {tokens} tokens: "
            f"{replace(ROWS[1], overwritten=60 - tokens)}",
        )
        for tokens in (1, -1)
    ),
    told(
        "tokens are pending at the end",
        moved(0, pending=10),
        "fragment 0: 10 tokens are pending at the end",
    ),
    told(
        "a row has other processed tokens, and the supervisor says that the run is over",
        [*moved(0, processed=110), (SUPERVISOR, Finished("drained"))],
        "fragment 0: processed 100, applied 20, the ledger has 110 and 20",
    ),
    told(
        "a row has other processed tokens",
        moved(0, processed=110),
        "fragment 0: processed 100, applied 20, the ledger has 110 and 20",
    ),
    told(
        "two contributions are applied to a fragment, and fewer are booked",
        [
            *(began(), reported(60), *applied(ONE, 20, 20), *applied(TWO, 30, 10)),
            finished(Row(60, 20, 0, 0, 0, 40, 0, 0), processed={"ana/1.1": 60}),
        ],
        "fragment 0: processed 60, applied 30, the ledger has 60 and 20",
    ),
    told(
        "a row has other applied tokens",
        moved(1, applied=10),
        "fragment 1: processed 100, applied 0, the ledger has 100 and 10",
    ),
    *(
        told(
            f"more tokens are {name} than were sent so",
            moved(0, **{name: 1}),
            f"fragment 0: 1 tokens are {name}, that is more than was sent",
        )
        for name in ("rejected", "late", "stale")
    ),
    told(
        "one more is late than was sent to this fragment",
        moved(1, late=11),
        "fragment 1: 11 tokens are late, that is more than was sent",
    ),
    told(
        "several contributions were rejected and stale, and some was contributed again",
        [
            *(began(), reported(60)),
            *(sent(ONE, 20, 20), fate(ONE, Fate.REJECTED, 20)),
            *(sent(TWO, 30, 10), fate(TWO, Fate.REJECTED)),
            *(sent("ana/1.1@1:3", 60, 20), fate("ana/1.1@1:3", Fate.STALE, 20)),
            finished(Row(60, 0, 30, 0, 10, 20, 0, 0), processed={"ana/1.1": 60}),
        ],
    ),
    *(
        told(
            f"less than none is {name}",
            moved(0, **{name: -1}),
            "fragment 0: a fate has less than no tokens: "
            f"{replace(ROWS[0], **{name: -1}, overwritten=ROWS[0].overwritten + extra)}",
        )
        for name, extra in (("rejected", 1), ("late", 1), ("stale", 1), ("lost", 11))
    ),
    told(
        "less than none is overwritten",
        [
            *(began(), reported(60), sent(ONE, 20, 20), fate(ONE, Fate.REJECTED, 20)),
            *(sent(TWO, 60, 50), fate(TWO, Fate.REJECTED, 50)),
            finished(Row(60, 0, 61, 0, 0, -1, 0, 0), processed={"ana/1.1": 60}),
        ],
        f"fragment 0: a fate has less than no tokens: {Row(60, 0, 61, 0, 0, -1, 0, 0)}",
    ),
    told("as much is lost as the ended had that was not applied", moved(0, lost=40)),
    told(
        "one more is lost than that",
        moved(0, lost=41),
        "fragment 0: 41 tokens are lost, more than ended incarnations had",
    ),
    told(
        "what was applied to another fragment can be lost, of those that ended", moved(1, lost=60)
    ),
    told(
        "one more is lost than all that ended had",
        moved(1, lost=61),
        "fragment 1: 61 tokens are lost, more than ended incarnations had",
    ),
    told(
        "what others applied does not lessen what the ended can lose",
        [
            *(began(), reported(60), ended(ANA, "1.1", 60)),
            *(reported(40, incarnation="1.2", actor=BEN), *applied(OF_BEN, 40, 40)),
            finished(Row(100, 40, 0, 0, 0, 0, 60, 0), processed=OPEN),
        ],
    ),
    *(
        told(
            f"{reason} ended a run of {budget} tokens after 100",
            of_budget(budget, reason)[0],
            *sentences,
            budget_tokens=budget,
            batch_tokens={ANA: 10, BEN: 5},
        )
        for reason, budget, sentences in (
            ("tokens", 100, ()),
            ("tokens", 109, ()),
            ("tokens", 110, ("100 of 110 tokens were processed",)),
            ("tokens", 99, ("100 of 99 tokens were processed",)),
            ("drained", 500, ()),
        )
    ),
)

TAPES: list[Tape] = [*FATES, *TWICE, *STEPS, *LEDGER]
