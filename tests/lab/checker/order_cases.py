"""Cases of order: epochs, incarnations, versions, the journal, fences, quorum, keeping up."""

from islands.lab.checker import order
from islands.protocol.identities import Fate, Role
from islands.protocol.tape.member_entries import ProcessEnded, Promoted
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import Closing, Committed, Finished, Seeded
from islands.protocol.tape.simulation_entries import (
    Final,
    Healed,
    ProcessKilled,
)
from tests.lab.checker.cases import (
    ANA,
    BEN,
    SPARE,
    SUPERVISOR,
    SYNCER,
    WORLD,
    Line,
    admitted,
    adopted,
    arrived,
    at,
    began,
    book_closed,
    by,
    closed,
    durable,
    fate,
    kept,
    lie,
    merged,
    resumed,
    sent,
    started,
    truth,
    wrote,
)

SUPERVISED = (SUPERVISOR, Started(1))
PAUSED = started(SPARE)  # and it tells no epoch yet
TAKEN_OVER = (SUPERVISOR, Promoted(SPARE, SYNCER))
FINAL = (WORLD, Final(["1.1", "1.1"], ["1.1", "x"], finite=True))


def committed(version: str, fragment: int = 0, digest: str | None = None) -> Line:
    return SYNCER, Committed(fragment, version, digest or version)


def seeded(version: str = "1.0") -> Line:
    return SYNCER, Seeded(ANA, version)


OVERTAKEN = "spare began epoch 2 after 4"
EPOCHS = by(
    order.epochs_grow,
    truth("each role's grow", SUPERVISED, began(1), (SUPERVISOR, Started(2)), began(2)),
    truth("one that paused tells its lower epoch late", PAUSED, began(3), began(2, SPARE)),
    lie("supervisor began epoch 1 after 1", SUPERVISED, SUPERVISED),
    lie("syncer began epoch 0 after 0", began(0)),
    lie(
        *("syncer began epoch 2 after 3", "syncer began epoch 3 after 3"),
        *(began(3), began(2), began(3)),
    ),
    lie(
        "spare began epoch 2 after 3",
        *(PAUSED, began(3), (SUPERVISOR, Started(3)), (SPARE, Started(2))),
    ),
    lie("spare began epoch 2 after 3", PAUSED, began(2), began(3), began(2, SPARE)),
    lie("spare began epoch 2 after 3", PAUSED, began(3), PAUSED, began(2, SPARE)),
    lie("spare began epoch 2 after 3", began(3), PAUSED, SUPERVISED, began(2, SPARE)),
    lie(OVERTAKEN, PAUSED, began(4), began(3, SPARE), began(2, SPARE)),
    lie(OVERTAKEN, PAUSED, began(3, SPARE), began(4), began(2, SPARE)),
    truth(
        "one from whose copy another goes on is behind that one",
        *(began(1), TAKEN_OVER, began(1001, SPARE), began(2), began(3), began(1002, SPARE)),
    ),
    lie(
        "syncer began epoch 1001 after 1001",
        *(began(1), TAKEN_OVER, began(1001, SPARE), began(1001)),
    ),
    lie("spare began epoch 1 after 2", began(1), began(2), TAKEN_OVER, began(1, SPARE)),
)

INCARNATIONS = by(
    order.incarnations_are_given_once,
    truth("those of a name grow", admitted("1.2"), admitted("1.1", BEN), admitted("1.3")),
    lie("1.2 went to ana and to ben", admitted("1.2"), admitted("1.2", BEN)),
    lie(
        *("ana got 1.9 after (2, 1)", "1.9 went to ana and to ana", "ana got 1.9 after (1, 9)"),
        *(admitted("2.1"), admitted("1.9"), admitted("1.9")),
    ),
    lie("ana got 0.0 after None", admitted("0.0")),
)

VERSIONS = [
    *by(
        order.versions_grow,
        truth(
            "each fragment's and each incarnation's grow",
            *(committed("1.1"), committed("1.1", 1), committed("2.3")),
            *(adopted("1.0"), adopted("1.2"), adopted("1.1", fragment=1)),
            *(adopted("1.1", incarnation="1.2"), adopted("1.1", actor=BEN)),
        ),
        lie("fragment 0: 1.1 committed after (1, 1)", committed("1.1"), committed("1.1")),
        lie(
            "fragment 0: 1.1 committed after (1, 2)",
            *(committed("1.2"), committed("1.1"), committed("1.2")),
        ),
        lie("ana adopted 1.0 after (1, 0), 0", adopted("1.0"), adopted("1.0")),
        lie("ana adopted 1.3 after (2, 1), 0", adopted("2.1"), adopted("1.3"), adopted("1.4")),
    ),
    *by(
        order.versions_follow,
        truth(
            "merges are chains, through a restart",
            *(began(), seeded("1.4"), merged("1.5"), merged("1.5", 1), merged("1.6")),
            *(wrote(1), resumed(2, 1), merged("2.7"), merged("2.6", 1)),
        ),
        truth(
            "a new version 0 begins new chains",
            *(began(), seeded(), merged("1.1"), merged("1.2"), seeded(), merged("1.1")),
        ),
        lie("fragment 0: version 1.2 follows 0", began(), seeded(), merged("1.2"), merged("1.3")),
        lie("fragment 0: version 1.1 follows 1", began(), seeded(), merged("1.1"), merged("1.1")),
        lie(
            "fragment 0: epoch 2 made version 1.2",
            *(began(), seeded(), merged("1.1"), wrote(1), resumed(2, 1), merged("1.2")),
        ),
    ),
    *by(
        order.versions_have_one_value,
        truth(
            "a fragment has its own",
            *(merged("1.1"), committed("1.1"), adopted("1.1"), merged("1.1", 1, digest="x"), FINAL),
        ),
        *(
            lie(
                f"fragment {fragment}, version 1.1 has two values ({other[-2]})",
                *(merged("1.1"), merged("1.1", 1), other),
            )
            for fragment, other in (
                (0, merged("1.1", digest="2")),
                (1, committed("1.1", 1, digest="x")),
                (0, adopted("1.1", digest="0")),
                (1, FINAL),
            )
        ),
    ),
]

EARLY = "ana adopted 1.0 of 0 before it was durable"
WRITING = [began(), *kept(1, 0, "1.0"), wrote(2, 0, "1.1")]
TAKEN_UP, LOST = (
    "record 2 was taken up and never written",
    "record 2 was durable, epoch 2 began at 1",
)
JOURNAL = by(
    order.journal_comes_first,
    truth(
        "a record makes those before it durable",
        *(began(), wrote(1, 0, "1.0"), wrote(2), wrote(3, 1, "1.0"), durable(3)),
        *(committed("1.0"), adopted("1.0"), adopted("1.0", fragment=1)),
    ),
    lie("syncer sent 1.1 of 0 before it was durable", *WRITING, committed("1.1"), durable(2)),
    lie("ana adopted 1.1 of 0 before it was durable", *WRITING, adopted("1.1"), durable(2)),
    lie("syncer sent 1.1 of 0 before it was durable", *WRITING, durable(1), committed("1.1")),
    lie(EARLY, began(), *kept(1, 1, "1.0"), adopted("1.0")),
    truth(
        "a supervisor's start leaves the journal as it is",
        *(began(), wrote(1, 0, "1.0"), SUPERVISED, durable(1), adopted("1.0")),
    ),
    truth("a restart takes up a whole record", *WRITING, resumed(2, 2), adopted("1.1")),
    lie(
        *(
            "ana adopted 1.1 of 0 before it was durable",
            "ben adopted 1.1 of 0 before it was durable",
        ),
        *(*WRITING, resumed(2, 1), adopted("1.0"), adopted("1.1")),
        *(*kept(2), adopted("1.1", actor=BEN)),
    ),
    lie(EARLY, began(), wrote(0, 0, "1.0"), began(2), adopted("1.0")),
    truth(
        "one that goes on from a copy owns it, also if the old one starts again",
        *(*WRITING, TAKEN_OVER, durable(2), resumed(1001, 2, SPARE), resumed(2, 1)),
        *(adopted("1.1"), *kept(3, 0, "2.1"), resumed(1002, 2, SPARE)),
    ),
    lie(
        "ana adopted 1.1 of 0 before it was durable",
        *(*WRITING, TAKEN_OVER, resumed(1001, 1, SPARE), durable(2), adopted("1.1")),
    ),
    lie(
        "ana adopted 2.1 of 0 before it was durable",
        *(*WRITING, TAKEN_OVER, resumed(1001, 2, SPARE), resumed(2, 1), *kept(2, 0, "2.1")),
        adopted("2.1"),
    ),
    lie(TAKEN_UP, began(), *kept(1), wrote(2), resumed(2, 1), resumed(3, 2)),
    lie(LOST, began(), *kept(1), *kept(2), resumed(2, 1)),
    lie(
        "record 2 was durable, epoch 3 began at 1",
        *(began(), *kept(1), wrote(2), resumed(2, 2), durable(2), resumed(3, 1)),
    ),
    truth(
        "what a start took up counts once others may hear of it",
        *(began(), *kept(1), wrote(2), resumed(2, 2), resumed(3, 1)),
    ),
    truth("two restarts take up one record", began(), *kept(1), resumed(2, 1), resumed(3, 1)),
    lie(LOST, began(), wrote(1), wrote(2), durable(2), durable(1), resumed(2, 1)),
    lie(
        *("record 0 was taken up and never written", "record 1 was durable, epoch 1 began at 0"),
        *(began(2), *kept(1), resumed(1, 0)),
    ),
    truth(
        "another syncer of the same epoch owns the journal",
        *(began(2), began(2, SPARE), *((SPARE, line[-1]) for line in kept(1, 0, "1.0"))),
        adopted("1.0"),
    ),
    truth(
        "a start that takes nothing up, though it names a record, begins anew",
        *(began(), *kept(1), (SYNCER, Started(2, resumed=False, sequence=5)), *kept(1)),
        resumed(3, 1),
    ),
    truth(
        "a journal that is begun anew holds none of the old records",
        *(began(), *kept(1), *kept(2), began(2), *kept(1), resumed(3, 1)),
    ),
    lie(
        "ana adopted 1.1 of 0 before it was durable",
        *(began(), *kept(1, 0, "1.0"), resumed(2, 1, SPARE), *kept(2, 0, "1.1"), adopted("1.1")),
    ),
    lie(
        "record 0 was taken up and never written",
        "ana adopted 1.2 of 0 before it was durable",
        *(resumed(3, 0), *kept(1, 0, "1.0"), resumed(2, 1, SPARE), *kept(2, 0, "1.1")),
        *((SPARE, line[-1]) for line in kept(3, 0, "1.2")),
        *(adopted("1.1"), adopted("1.2")),
    ),
)

APPLIED, AGAIN = "ana/1.2@1:7", "ana/1.2@2:8"
BEGUN = [began(), seeded()]


def applied(ticket: str = APPLIED, base: str = "1.0") -> list[Line]:
    return [sent(ticket, base=base), closed(ANA, BEN), fate(ticket)]


FENCES = by(
    order.what_ended_is_fenced,
    truth(
        "ends of another learner, and of an older incarnation",
        *(*BEGUN, book_closed(ANA, "1.1"), book_closed(BEN, "1.3"), *applied()),
    ),
    truth(
        "an end while the merge is computed, before another fragment's round closes",
        *(*BEGUN, sent(APPLIED), closed(ANA), book_closed(ANA, "1.2")),
        *(closed(BEN, fragment=1), fate(APPLIED)),
    ),
    *(
        lie(
            f"{APPLIED} was applied after its incarnation had ended",
            *(*BEGUN, book_closed(ANA, ended), *applied()),
        )
        for ended in ("1.2", "1.3", "2.1")
    ),
    truth(
        "what is late may be of an ended incarnation",
        *(*BEGUN, sent(APPLIED), book_closed(ANA, "1.2"), closed(BEN), fate(APPLIED, Fate.LATE)),
    ),
    lie(f"{APPLIED} was applied in epoch 2", *BEGUN, wrote(1), resumed(2, 1), *applied()),
    lie(
        f"{APPLIED} was admitted in epoch 2",
        *(*BEGUN, arrived(APPLIED), wrote(1), resumed(2, 1), arrived(AGAIN), arrived(APPLIED)),
    ),
    lie(f"{AGAIN} was admitted in epoch 1", *BEGUN, arrived(AGAIN)),
    truth("the seed is kept until the second merge", *BEGUN, merged("1.1"), *applied()),
    truth(
        "the oldest base that is kept",
        *(*BEGUN, merged("1.1"), merged("1.1", 1), merged("1.2"), *applied(base="1.1")),
    ),
    lie(
        f"{APPLIED} was applied from base 1.0, kept were [(1, 1), (1, 2)]",
        *(*BEGUN, merged("1.1"), merged("1.2"), *applied()),
    ),
    lie(
        f"{APPLIED} was applied from base 1.1, kept were [(1, 0)]",
        *(*BEGUN, merged("1.1", 1), *applied(base="1.1")),
    ),
    truth(
        "a contribution that was not the one applied may have another base",
        *(*BEGUN, sent(APPLIED, 20, 20, base="9.9"), *applied()),
    ),
)

CLOSING = (SYNCER, Closing("tokens"))
QUORUM = by(
    order.rounds_have_their_quorum,
    truth("all closed and merged with it", began(), closed(ANA, BEN), merged("1.1")),
    lie("round 7 closed with 1 contributions", began(), closed(ANA)),
    lie("round 3 merged 1 contributions", began(), closed(ANA, BEN), merged("1.1", names=ANA)),
    lie("round 7 closed with 0 contributions", began(), CLOSING, closed(ANA), closed()),
    lie(
        "round 7 closed with 1 contributions",
        *(began(), CLOSING, wrote(1), resumed(2, 1), closed(ANA)),
    ),
)

ALIVE: list[Line] = [
    *(admitted("1.1"), admitted("1.2", BEN), admitted("1.3", "eve", Role.OBSERVER)),
    *(started(name) for name in (ANA, BEN, "eve")),
]
LATEST = at(12.0, committed("1.2"))
HEALED = [*ALIVE, (10.0, WORLD, Healed(2.0, 3.0)), LATEST]
OWED = "ben had not adopted 1.2 of 0 3.0 s after 12.0 s"


def adopts(version: str, name: str, at_s: float = 13.0, fragment: int = 0) -> Line:
    return at(at_s, adopted(version, actor=name, fragment=fragment))


ANA_DOES = [*HEALED, adopts("1.2", ANA)]
ENDED = ProcessEnded(BEN)
FOR_ANA = [*HEALED[:-1], at(11.0, merged("1.2", names=ANA)), *ANA_DOES[-2:]]
KEEPING_UP = by(
    order.learners_keep_up,
    truth("nobody promised anything yet", *ALIVE, LATEST),
    truth(
        "all adopt it at the last moment, or something newer, after an older one",
        *(*HEALED, adopts("1.1", BEN, 12.5), adopts("1.2", ANA, 15.0), adopts("1.3", BEN, 14.0)),
    ),
    truth(
        "a learner whose process the tape does not show",
        *(*ALIVE[:-3], *HEALED[-2:], at(13.0, (WORLD, ProcessEnded("eve")))),
    ),
    *(
        truth(
            f"the run was over at {over_s} s, and one was there for a while",
            *(*HEALED, at(over_s, (SYNCER, Finished("tokens", [], {}))), at(20.0, (WORLD, ENDED))),
            *(at(20.0, (WORLD, ProcessEnded(name))) for name in (ANA, BEN)),
        )
        for over_s in (14.0, 15.0)
    ),
    lie(OWED, *ANA_DOES, adopts("1.2", BEN, 15.1)),
    lie(OWED, *ANA_DOES, adopts("1.1", BEN)),
    lie(OWED, *ANA_DOES, adopts("1.2", BEN, fragment=1)),
    truth("one has not recovered yet", *HEALED[:-1], at(11.9, committed("1.2"))),
    truth(
        "one was born after the faults stopped",
        *(*HEALED[:-1], at(10.1, started(BEN)), *ANA_DOES[-2:]),
    ),
    lie(OWED, *HEALED[:-1], at(10.0, started(BEN)), *ANA_DOES[-2:]),
    *(
        truth(f"a {end.kind} came before it was due", *ANA_DOES, at(15.0, (WORLD, end)))
        for end in (ENDED, ProcessKilled(BEN, silent=True, mailbox_most=0))
    ),
    lie(OWED, *ANA_DOES, at(15.1, (WORLD, ENDED))),
    lie(OWED, *ANA_DOES, at(15.0, (SUPERVISOR, Finished("tokens")))),
    truth("a value is for those who contributed", *FOR_ANA, to_contributors=True),
    lie(OWED, *FOR_ANA),
    lie(OWED, *HEALED[:-1], at(11.0, merged("1.2")), *ANA_DOES[-2:], to_contributors=True),
)

CASES = [*EPOCHS, *INCARNATIONS, *VERSIONS, *JOURNAL, *FENCES, *QUORUM, *KEEPING_UP]
