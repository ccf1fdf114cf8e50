"""Tapes about pulls: each has one end, and who is able is asked, and merged."""

from islands.lab.checker import pulls
from islands.protocol.identities import Fate, LearnerName, Phase, Status
from islands.protocol.tape.learner_entries import Reported
from islands.protocol.tape.member_entries import Linked, Paused, StatusChanged, Unlinked
from islands.protocol.tape.round_entries import Asked, Closing, Declined, Opened
from islands.protocol.tape.simulation_entries import Healed
from tests.lab.checker.told import (
    ANA,
    BEN,
    SUPERVISOR,
    SYNCER,
    WORLD,
    Tape,
    Told,
    adopted,
    arrived,
    began,
    by,
    fate,
    merged,
    told,
)


def opened(round_: int, *names: str) -> Told:
    return SYNCER, Opened(round_, round_ % 2, [LearnerName(name) for name in names], {})


def asked(round_: int) -> Told:
    return SYNCER, Asked(f"ana/1.1@1:{round_}", round_ % 2)


def declined(round_: int) -> Told:
    """Ana's pull ends without a contribution."""
    return SYNCER, Declined(f"ana/1.1@1:{round_}", round_ % 2, "nothing")


def answered(round_: int) -> Told:
    return arrived(f"ana/1.1@1:{round_}")


LINKED = (SYNCER, Linked(ANA, "1.1"))
UNLINKED = (SYNCER, Unlinked(ANA))

ENDS = by(
    pulls.pulls_end_once,
    told(
        "each pull is answered, declined, late or void, in order",
        [
            began(),
            LINKED,
            opened(0, ANA, BEN),
            opened(1, ANA),
            answered(0),
            fate("ana/1.1@1:0"),
            declined(1),
            asked(1),
            fate("ana/1.1@1:1", Fate.LATE),
            opened(2, ANA),
            UNLINKED,
            LINKED,
            asked(2),
            answered(2),
        ],
    ),
    told(
        "what was overtaken may come late, and counts for nothing",
        [
            began(),
            *(opened(0, ANA), declined(0), opened(2, ANA), answered(2)),
            fate("ana/1.1@1:0", Fate.LATE),
        ],
    ),
    told("a restart ends all", [opened(0, ANA), began(2), opened(0, ANA), answered(0)]),
    told(
        "it is asked twice",
        [began(), opened(0, ANA), asked(0)],
        "ana was asked for round 0 again, before it had answered",
    ),
    told(
        "a pull ends twice",
        [began(), opened(0, ANA), answered(0), declined(0)],
        "the pull of round 0 of ana ended, and was not open",
    ),
    told(
        "a pull is lost",
        [began(), opened(0, ANA), opened(1, ANA), answered(1), opened(2, ANA), answered(2)],
        "ana answered round 2 of 0, and never round 0",
    ),
)


def reports(tokens: int, phase: Phase = Phase.STEPPING) -> Told:
    return ANA, Reported("1.1", phase, tokens, 10**6, [])


WHOLE: list[Told] = [began(), LINKED, reports(0), adopted("1.0"), adopted("1.0", fragment=1)]
ABLE: list[Told] = [*WHOLE, reports(10), reports(20), reports(30)]


def without(first: int, count: int) -> list[Told]:
    """So many rounds ask ben alone."""
    return [opened(number, BEN) for number in range(first, first + count)]


ASKED = by(
    pulls.the_able_are_asked,
    told("four rounds are two cycles", [*ABLE, *without(0, 4)], paced=True, report_late_s=2.0),
    told(
        "a fifth one does not ask it",
        [*ABLE, *without(0, 5)],
        "ana owed nothing since 4.0 s, and 4 rounds up to number 4 at 12.0 s did not ask it (None)",
        paced=True,
        report_late_s=2.0,
    ),
    *(
        told(f"it is not able: {name}", [*lines, *without(0, 7)], paced=True, report_late_s=2.0)
        for name, lines in {
            "no link": [*ABLE, UNLINKED],
            "suspect": [*ABLE, (SYNCER, StatusChanged(ANA, Status.SUSPECT))],
            "healing": [*ABLE, reports(30, Phase.HEALING)],
            "not whole": [began(), LINKED, reports(0), adopted("1.0"), reports(9), reports(10)],
            "a pull is open": [*ABLE, opened(9, ANA)],
            "its last contribution is not adopted": [*ABLE, merged("1.1")],
            "no step since its base": [*WHOLE, reports(0), reports(0), reports(0)],
            "the run is paused": [*ABLE, (SUPERVISOR, Paused())],
            "the run closes": [*ABLE, (SYNCER, Closing("tokens"))],
            "its report is on its way": WHOLE,
        }.items()
    ),
    told(
        "one is asked in between",
        [*ABLE, *without(0, 3), opened(3, ANA), *without(4, 4)],
        paced=True,
    ),
    told("rounds that a learner opens ask it alone", [*ABLE, *without(0, 9)]),
)

OTHERS = [merged(f"1.{number}", participants=[LearnerName(BEN)]) for number in range(1, 23)]

MERGED = by(
    pulls.the_able_are_merged,
    told("twenty merges are ten cycles", [*ABLE, *OTHERS[:20]], awaits=True),
    told(
        "one more is without it",
        [*ABLE, *OTHERS[:21]],
        "ana stepped, and 21 merges from 3.0 to 28.0 s were without it",
        awaits=True,
    ),
    told("it takes part once", [*ABLE, *OTHERS[:11], merged("1.12"), *OTHERS[12:]], awaits=True),
    told("its answers are slow", [*ABLE, *OTHERS[:21]], awaits=True, report_late_s=99.0),
    told(
        "before healing",
        [*ABLE, *OTHERS[:21], (WORLD, Healed(1.0, 1.0))],
        awaits=True,
    ),
    told("a quorum of one waits for nobody", [*ABLE, *OTHERS[:21]]),
)

TAPES: list[Tape] = [*ENDS, *ASKED, *MERGED]
