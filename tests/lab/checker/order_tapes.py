"""Tapes about order: epochs, incarnations, versions, the journal, fences, quorum, keeping up."""

from islands.lab.checker import order
from islands.protocol.identities import Fate, LearnerName, Role
from islands.protocol.tape.member_entries import ProcessEnded, ProcessStarted
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import BookClosed, Closing, Committed, Finished, Seeded
from islands.protocol.tape.simulation_entries import Final, Healed, ProcessKilled
from tests.lab.checker.told import (
    ANA,
    BEN,
    SPARE,
    SUPERVISOR,
    SYNCER,
    WORLD,
    Tape,
    Told,
    admitted,
    adopted,
    arrived,
    began,
    by,
    closed,
    durable,
    fate,
    kept,
    merged,
    resumed,
    sent,
    told,
    wrote,
)

STANDS_STILL = (WORLD, ProcessStarted(SPARE))
SUPERVISED = (SUPERVISOR, Started(1))


def committed(version: str, fragment: int = 0, digest: str | None = None) -> Told:
    return SYNCER, Committed(fragment, version, digest or version)


def seeded(version: str) -> Told:
    """Version 0 has arrived."""
    return SYNCER, Seeded(ANA, version)


EPOCHS = by(
    order.epochs_grow,
    told(
        "supervisors and syncers count apart, and both grow",
        [(SUPERVISOR, Started(1)), began(1), (SUPERVISOR, Started(2)), began(2)],
    ),
    told(
        "a supervisor takes its predecessor's epoch",
        [(SUPERVISOR, Started(3)), (SUPERVISOR, Started(3))],
        "supervisor began epoch 3 after 3",
    ),
    told(
        "a syncer takes a lower epoch",
        [began(3), began(2), began(3)],
        "syncer began epoch 2 after 3",
        "syncer began epoch 3 after 3",
    ),
    told("an epoch is 0", [began(0)], "syncer began epoch 0 after 0"),
    told(
        "a syncer that stood still tells its lower epoch late",
        [STANDS_STILL, began(3), began(2, SPARE)],
    ),
    told(
        "a supervisor tells its epoch late",
        [STANDS_STILL, began(3), (SUPERVISOR, Started(3)), (SPARE, Started(2))],
        "spare began epoch 2 after 3",
    ),
    told(
        "one that stood still took an epoch that another has",
        [STANDS_STILL, began(2), began(3), began(2, SPARE)],
        "spare began epoch 2 after 3",
    ),
    told(
        "one that stood still is late twice",
        [STANDS_STILL, began(4), began(3, SPARE), began(2, SPARE)],
        "spare began epoch 2 after 4",
    ),
    told(
        "one that has told its epoch stood still no longer",
        [STANDS_STILL, began(3, SPARE), began(4), began(2, SPARE)],
        "spare began epoch 2 after 4",
    ),
    told(
        "one that stood still is started anew",
        [STANDS_STILL, began(3), STANDS_STILL, began(2, SPARE)],
        "spare began epoch 2 after 3",
    ),
    told(
        "a supervisor's start makes no syncer late",
        [began(3), STANDS_STILL, SUPERVISED, began(2, SPARE)],
        "spare began epoch 2 after 3",
    ),
)

INCARNATIONS = by(
    order.incarnations_are_given_once,
    told(
        "incarnations of a name grow, others may be given between",
        [admitted("1.2"), admitted("1.1", BEN), admitted("1.3"), admitted("2.1", BEN)],
    ),
    told(
        "two names get one incarnation",
        [admitted("1.2"), admitted("1.2", BEN)],
        "1.2 went to ana and to ben",
    ),
    told(
        "a name gets an older incarnation",
        [admitted("2.1"), admitted("1.9"), admitted("1.9")],
        "ana got 1.9 after (2, 1)",
        "1.9 went to ana and to ana",
        "ana got 1.9 after (1, 9)",
    ),
    told("an incarnation is 0", [admitted("0.0")], "ana got 0.0 after None"),
)

VERSIONS = [
    *by(
        order.versions_grow,
        told(
            "committed and adopted versions grow, each fragment's and learner's by itself",
            [
                *(committed("1.1"), committed("1.1", 1), committed("1.2"), committed("2.3")),
                *(adopted("1.0"), adopted("1.2"), adopted("1.1", fragment=1)),
                *(adopted("1.1", incarnation="1.2"), adopted("1.1", actor=BEN)),
            ],
        ),
        told(
            "a version is committed twice",
            [committed("1.1"), committed("1.1")],
            "fragment 0: 1.1 committed after (1, 1)",
        ),
        told(
            "an older version is committed",
            [committed("1.2"), committed("1.1"), committed("1.2")],
            "fragment 0: 1.1 committed after (1, 2)",
        ),
        told(
            "a learner adopts a version twice",
            [adopted("1.0"), adopted("1.0")],
            "ana adopted 1.0 after (1, 0), 0",
        ),
        told(
            "a learner goes back",
            [adopted("2.1"), adopted("1.3"), adopted("1.4")],
            "ana adopted 1.3 after (2, 1), 0",
        ),
    ),
    *by(
        order.versions_follow,
        told(
            "merges are chains, through a restart",
            [
                *(began(), seeded("1.4"), merged("1.5"), merged("1.5", 1), merged("1.6")),
                *(wrote(1), resumed(2, 1), merged("2.7"), merged("2.6", 1)),
            ],
        ),
        told(
            "a new value of version 0 begins new chains",
            [began(), seeded("1.0"), merged("1.1"), merged("1.2"), seeded("1.0"), merged("1.1")],
        ),
        told(
            "a number is left out",
            [began(), seeded("1.0"), merged("1.2"), merged("1.3")],
            "fragment 0: version 1.2 follows 0",
        ),
        told(
            "a number comes again",
            [began(), seeded("1.0"), merged("1.1"), merged("1.1")],
            "fragment 0: version 1.1 follows 1",
        ),
        told(
            "a version has the epoch of an earlier start",
            [began(), seeded("1.0"), merged("1.1"), wrote(1), resumed(2, 1), merged("1.2")],
            "fragment 0: epoch 2 made version 1.2",
        ),
        told(
            "a version has an epoch that no start has taken",
            [began(), seeded("1.0"), merged("2.1")],
            "fragment 0: epoch 1 made version 2.1",
        ),
    ),
    *by(
        order.versions_have_one_value,
        told(
            "a version has one value, a fragment has its own",
            [
                *(merged("1.1"), committed("1.1"), adopted("1.1"), merged("1.1", 1, digest="x")),
                (WORLD, Final(["1.1", "1.1"], ["1.1", "x"], finite=True)),
            ],
        ),
        *(
            told(
                f"a version has another value in an entry of kind {other[-1].kind}",
                [merged("1.1"), merged("1.1", 1), other],
                f"fragment {fragment}, version 1.1 has two values ({who})",
            )
            for who, fragment, other in (
                (SYNCER, 0, merged("1.1", digest="2")),
                (SYNCER, 1, committed("1.1", 1, digest="x")),
                (ANA, 0, adopted("1.1", digest="0")),
                (WORLD, 1, (WORLD, Final(["1.1", "1.1"], ["1.1", "x"], finite=True))),
            )
        ),
    ),
]

JOURNAL = by(
    order.journal_comes_first,
    told(
        "what is sent and adopted is durable, a record makes those before it durable",
        [
            *(began(), wrote(1, 0, "1.0"), wrote(2), wrote(3, 1, "1.0"), durable(3)),
            *(committed("1.0"), adopted("1.0"), adopted("1.0", fragment=1)),
        ],
    ),
    told(
        "a version is sent that is still being written",
        [began(), *kept(1, 0, "1.0"), wrote(2, 0, "1.1"), committed("1.1"), durable(2)],
        "syncer sent 1.1 of 0 before it was durable",
    ),
    told(
        "a version is adopted that is still being written",
        [began(), *kept(1, 0, "1.0"), wrote(2, 0, "1.1"), adopted("1.1"), durable(2)],
        "ana adopted 1.1 of 0 before it was durable",
    ),
    told(
        "another fragment's record makes nothing durable",
        [began(), *kept(1, 1, "1.0"), adopted("1.0")],
        "ana adopted 1.0 of 0 before it was durable",
    ),
    told(
        "a record makes nothing durable that was written after it",
        [began(), wrote(1, 0, "1.0"), wrote(2, 1, "1.0"), durable(1), adopted("1.0", fragment=1)],
        "ana adopted 1.0 of 1 before it was durable",
    ),
    told(
        "a supervisor's start leaves the journal as it is",
        [began(), wrote(1, 0, "1.0"), SUPERVISED, durable(1), adopted("1.0")],
    ),
    told(
        "a restart takes up a record that it finds whole, though nobody heard of it",
        [began(), *kept(1, 0, "1.0"), wrote(2, 0, "1.1"), resumed(2, 2), adopted("1.1")],
    ),
    told(
        "a restart does not find what was being written",
        [
            *(began(), *kept(1, 0, "1.0"), wrote(2, 0, "1.1"), resumed(2, 1)),
            *(adopted("1.0"), adopted("1.1"), *kept(2), adopted("1.1", actor=BEN)),
        ],
        "ana adopted 1.1 of 0 before it was durable",
        "ben adopted 1.1 of 0 before it was durable",
    ),
    told(
        "a start that takes nothing up makes nothing durable",
        [began(), wrote(0, 0, "1.0"), began(2), adopted("1.0")],
        "ana adopted 1.0 of 0 before it was durable",
    ),
    told(
        "a restart takes up a record that was never written",
        [began(), *kept(1), resumed(2, 2)],
        "record 2 was taken up and never written",
    ),
    told(
        "a restart takes up what an earlier one had undone",
        [began(), *kept(1), wrote(2), resumed(2, 1), resumed(3, 2)],
        "record 2 was taken up and never written",
    ),
    told(
        "a restart begins before what was durable",
        [began(), *kept(1), *kept(2), resumed(2, 1)],
        "record 2 was durable, epoch 2 began at 1",
    ),
    told(
        "two restarts, of which the second begins before what the first one took up",
        [began(), *kept(1), wrote(2), resumed(2, 2), resumed(3, 1)],
        "record 2 was durable, epoch 3 began at 1",
    ),
    told("two restarts take up the same record", [began(), *kept(1), resumed(2, 1), resumed(3, 1)]),
    told(
        "an older record is told to be durable after a newer one",
        [began(), wrote(1), wrote(2), durable(2), durable(1), resumed(2, 1)],
        "record 2 was durable, epoch 2 began at 1",
    ),
    told(
        "a syncer that goes back in epochs owns its journal still",
        [began(2), *kept(1), resumed(1, 0)],
        "record 0 was taken up and never written",
        "record 1 was durable, epoch 1 began at 0",
    ),
    told(
        "another syncer with the same epoch owns the journal",
        [
            *(began(2), began(2, SPARE)),
            *((SPARE, line[-1]) for line in kept(1, 0, "1.0")),
            adopted("1.0"),
        ],
    ),
    told(
        "a start that takes nothing up, though it names a record, begins anew",
        [
            began(),
            *kept(1),
            (SYNCER, Started(2, resumed=False, sequence=5)),
            *kept(1),
            resumed(3, 1),
        ],
    ),
    told(
        "a journal that is begun anew holds none of the old records",
        [began(), *kept(1), *kept(2), began(2), *kept(1), resumed(3, 1)],
    ),
    told(
        "what a syncer wrote after another had started is not in the journal",
        [
            *(began(), *kept(1, 0, "1.0"), resumed(2, 1, SPARE)),
            *(*kept(2, 0, "1.1"), adopted("1.1")),
        ],
        "ana adopted 1.1 of 0 before it was durable",
    ),
    told(
        "one that tells late of a lower epoch does not own the journal",
        [
            *(resumed(3, 0), *kept(1, 0, "1.0"), resumed(2, 1, SPARE), *kept(2, 0, "1.1")),
            *((SPARE, line[-1]) for line in kept(3, 0, "1.2")),
            *(adopted("1.1"), adopted("1.2")),
        ],
        "record 0 was taken up and never written",
        "ana adopted 1.2 of 0 before it was durable",
    ),
)

APPLIED = "ana/1.2@1:7"
BEGUN = [began(), seeded("1.0")]


def applied(ticket: str = APPLIED, base: str = "1.0", tokens: int = 10) -> list[Told]:
    return [sent(ticket, base=base), closed(ANA, BEN), fate(ticket, tokens=tokens)]


FENCES = by(
    order.what_ended_is_fenced,
    told("a contribution of a live learner", [*BEGUN, *applied()]),
    told(
        "an end of another learner, and of an older incarnation",
        [
            *BEGUN,
            *((SYNCER, BookClosed(ANA, "1.1", 0)), (SYNCER, BookClosed(BEN, "1.3", 0))),
            *applied(),
        ],
    ),
    told(
        "an end while the merge is computed",
        [
            *BEGUN,
            *(sent(APPLIED), closed(ANA), (SYNCER, BookClosed(ANA, "1.2", 0)), fate(APPLIED)),
        ],
    ),
    told(
        "an end before another fragment's round closed",
        [
            *(*BEGUN, sent(APPLIED), closed(ANA), (SYNCER, BookClosed(ANA, "1.2", 0))),
            *(closed(BEN, fragment=1), fate(APPLIED)),
        ],
    ),
    *(
        told(
            f"{ended} ended before the round closed",
            [*BEGUN, (SYNCER, BookClosed(ANA, ended, 0)), *applied()],
            f"{APPLIED} was applied after its incarnation had ended",
        )
        for ended in ("1.2", "1.3", "2.1")
    ),
    told(
        "what is late may be of an ended incarnation",
        [
            *(*BEGUN, sent(APPLIED), (SYNCER, BookClosed(ANA, "1.2", 0)), closed(BEN)),
            fate(APPLIED, Fate.LATE),
        ],
    ),
    told(
        "a ticket of an earlier start is applied",
        [*BEGUN, wrote(1), resumed(2, 1), *applied()],
        f"{APPLIED} was applied in epoch 2",
    ),
    told(
        "a ticket of a start to come is applied",
        [*BEGUN, *applied("ana/1.2@2:7")],
        "ana/1.2@2:7 was applied in epoch 1",
    ),
    told(
        "a ticket is admitted by the start that gave it",
        [*BEGUN, arrived(APPLIED), wrote(1), resumed(2, 1), arrived("ana/1.2@2:8")],
    ),
    told(
        "a ticket is admitted again after a restart",
        [*BEGUN, arrived(APPLIED), wrote(1), resumed(2, 1), arrived(APPLIED)],
        f"{APPLIED} was admitted in epoch 2",
    ),
    told(
        "a ticket of a start to come is admitted",
        [*BEGUN, arrived("ana/1.2@2:8")],
        "ana/1.2@2:8 was admitted in epoch 1",
    ),
    told(
        "the oldest base that is kept",
        [*BEGUN, merged("1.1"), merged("1.1", 1), merged("1.2"), *applied(base="1.1")],
    ),
    told("the seed is kept until the second merge", [*BEGUN, merged("1.1"), *applied(base="1.0")]),
    told(
        "a base that is older than kept",
        [*BEGUN, merged("1.1"), merged("1.2"), *applied(base="1.0")],
        f"{APPLIED} was applied from base 1.0, kept were [(1, 1), (1, 2)]",
    ),
    told(
        "a base that nobody made",
        [*BEGUN, merged("1.1", 1), *applied(base="1.1")],
        f"{APPLIED} was applied from base 1.1, kept were [(1, 0)]",
    ),
    told(
        "a contribution that was not the one applied may have another base",
        [*BEGUN, sent(APPLIED, 20, 20, base="9.9"), *applied()],
    ),
)

QUORUM = by(
    order.rounds_have_their_quorum,
    told("rounds close and merge with the quorum", [began(), closed(ANA, BEN), merged("1.1")]),
    told(
        "a round closes with one less",
        [began(), closed(ANA)],
        "round 7 closed with 1 contributions",
    ),
    told(
        "a round merges one less, after a refusal",
        [began(), closed(ANA, BEN), merged("1.1", participants=[LearnerName(ANA)])],
        "round 3 merged 1 contributions",
    ),
    told(
        "at the end one will do, and none will not",
        [began(), (SYNCER, Closing("tokens")), closed(ANA), closed()],
        "round 7 closed with 0 contributions",
    ),
    told(
        "a restart ends the closing",
        [began(), (SYNCER, Closing("tokens")), wrote(1), resumed(2, 1), closed(ANA)],
        "round 7 closed with 1 contributions",
    ),
)

HEALED = (10.0, WORLD, Healed(2.0, 3.0))
ALIVE: list[Told] = [
    *(admitted("1.1"), admitted("1.2", BEN), admitted("1.3", "eve", Role.OBSERVER)),
    *((WORLD, ProcessStarted(name)) for name in (ANA, BEN, "eve")),
]


def at(at_s: float, line: Told) -> Told:
    return (at_s, *line[-2:])


def adopts(version: str, at_s: float = 13.0, names: tuple[str, ...] = (ANA, BEN)) -> list[Told]:
    return [at(at_s, adopted(version, actor=name)) for name in names]


OWED = "ben had not adopted 1.2 of 0 3.0 s after 12.0 s"
LATEST = at(12.0, committed("1.2"))
KEEPING_UP = by(
    order.learners_keep_up,
    told("nobody promised anything yet", [*ALIVE, LATEST]),
    told(
        "all learners adopt what is committed, at the last moment, or something newer",
        [*ALIVE, HEALED, LATEST, *adopts("1.2", 15.0, (ANA,)), *adopts("1.3", 14.0, (BEN,))],
    ),
    told(
        "a learner whose process the tape does not show, and the end of another process",
        [*ALIVE[:-3], HEALED, LATEST, at(13.0, (WORLD, ProcessEnded("eve")))],
    ),
    told(
        "one adopts an older version first",
        [*ALIVE, HEALED, *adopts("1.1", 11.0), LATEST, *adopts("1.2")],
    ),
    told(
        "one is there a while after the run was over",
        [
            *(*ALIVE, HEALED, LATEST, at(14.0, (SYNCER, Finished("tokens", [], {})))),
            *(at(20.0, (WORLD, ProcessEnded(name))) for name in (ANA, BEN)),
        ],
    ),
    told(
        "one adopts too late",
        [*ALIVE, HEALED, LATEST, *adopts("1.2", names=(ANA,)), *adopts("1.2", 15.1, (BEN,))],
        OWED,
    ),
    told(
        "one adopts an older version",
        [*ALIVE, HEALED, LATEST, *adopts("1.2", names=(ANA,)), *adopts("1.1", 13.0, (BEN,))],
        OWED,
    ),
    told(
        "one adopts another fragment's",
        [
            *(*ALIVE, HEALED, LATEST, *adopts("1.2", names=(ANA,))),
            at(13.0, adopted("1.2", actor=BEN, fragment=1)),
        ],
        OWED,
    ),
    told(
        "one has not recovered yet",
        [*ALIVE, HEALED, at(11.9, committed("1.2")), at(11.9, committed("1.1", 1))],
    ),
    told(
        "one was born after the faults stopped",
        [
            *(*ALIVE, HEALED, at(10.1, (WORLD, ProcessStarted(BEN))), LATEST),
            *adopts("1.2", names=(ANA,)),
        ],
    ),
    told(
        "one was born as the faults stopped",
        [
            *(*ALIVE, HEALED, at(10.0, (WORLD, ProcessStarted(BEN))), LATEST),
            *adopts("1.2", names=(ANA,)),
        ],
        OWED,
    ),
    *(
        told(
            f"one {what} before it was due",
            [*ALIVE, HEALED, LATEST, *adopts("1.2", names=(ANA,)), at(15.0, (WORLD, end))],
        )
        for what, end in (
            ("ended", ProcessEnded(BEN)),
            ("was killed", ProcessKilled(BEN, silent=True, mailbox_most=0)),
        )
    ),
    told(
        "one ended after it was due",
        [
            *(*ALIVE, HEALED, LATEST, *adopts("1.2", names=(ANA,))),
            at(15.1, (WORLD, ProcessEnded(BEN))),
        ],
        OWED,
    ),
    told(
        "the run was over before it was due",
        [*ALIVE, HEALED, LATEST, at(15.0, (SYNCER, Finished("tokens", [], {})))],
    ),
    told(
        "the supervisor's word does not end the run",
        [
            *(*ALIVE, HEALED, LATEST, *adopts("1.2", names=(ANA,))),
            at(15.0, (SUPERVISOR, Finished("tokens"))),
        ],
        OWED,
    ),
    told(
        "a value is for those who contributed",
        [
            *(*ALIVE, HEALED, at(11.0, merged("1.2", participants=[LearnerName(ANA)])), LATEST),
            *adopts("1.2", names=(ANA,)),
        ],
        to_contributors=True,
    ),
    told(
        "one that contributed does not adopt the value",
        [*ALIVE, HEALED, at(11.0, merged("1.2")), LATEST, *adopts("1.2", names=(ANA,))],
        OWED,
        to_contributors=True,
    ),
    told(
        "all owe a value that is sent to all",
        [
            *(*ALIVE, HEALED, at(11.0, merged("1.2", participants=[LearnerName(ANA)])), LATEST),
            *adopts("1.2", names=(ANA,)),
        ],
        OWED,
    ),
)

TAPES: list[Tape] = [
    *(*EPOCHS, *INCARNATIONS, *VERSIONS, *JOURNAL),
    *(*FENCES, *QUORUM, *KEEPING_UP),
]
