"""Cases of bounds: finite values, memory, mailboxes, the end of the run, moments; and of pulls."""

from math import inf, nan

from islands.lab.checker import bounds, pulls
from islands.protocol.identities import Fate, LearnerName, Phase, Role, Status
from islands.protocol.tape import learner_entries as learners
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.member_entries import (
    Linked,
    Paused,
    ProcessEnded,
    Promoted,
    StatusChanged,
    Unlinked,
)
from islands.protocol.tape.process_entries import Exit
from islands.protocol.tape.round_entries import Asked, Closing, Declined, Finished, Opened
from islands.protocol.tape.simulation_entries import (
    DISK_MENDED,
    FAILING,
    FREEZE,
    FULL,
    SECOND_SYNCER,
    SLOW_DISK,
    THAW,
    Final,
    Healed,
    LeftOver,
    ProcessKilled,
)
from tests.lab.checker.cases import (
    ANA,
    BEN,
    SPARE,
    SUPERVISOR,
    SYNCER,
    WORLD,
    Case,
    Line,
    admitted,
    adopted,
    arrived,
    at,
    began,
    by,
    fate,
    lie,
    merged,
    reported,
    started,
    struck,
    truth,
)


def ended(name: str, error: str = "", **held: int) -> Line:
    return WORLD, ProcessEnded(name, error=error, **held)  # type: ignore[arg-type]


def killed(name: str, **held: int) -> Line:
    return WORLD, ProcessKilled(name, **{"silent": False, "mailbox_most": 0, **held})  # type: ignore[arg-type]


FINITE = by(
    bounds.values_are_finite,
    truth("all is finite", merged("1.1"), (WORLD, Final(["1.1"], ["x"], finite=True))),
    *(
        lie(f"fragment 0: merging 1.1 measured {measured}", merged("1.1", **changed))
        for changed, measured in (
            ({"norms": [2.0, nan]}, [2.0, None, 2.0, 0.5]),
            ({"direction_norm": inf}, [2.0, None, 0.5]),
            ({"cosine": None}, [2.0, 2.0, None]),
        )
    ),
    lie(
        "the run ended with values that are not finite, at 7.000 s",
        (7.0, WORLD, Final(["1.1"], ["x"], finite=False)),
    ),
)

TWO_LEARNERS = [
    *(admitted("1.1"), admitted("1.2", BEN), admitted("1.3", BEN)),
    admitted("1.4", "eve", Role.OBSERVER),
]
MEMORY = [
    *by(
        bounds.contributions_fit,
        truth(
            "as many bytes wait as two open rounds of two learners have",
            *(*TWO_LEARNERS, ended(SYNCER, waiting_bytes_most=64)),
            *(killed(SYNCER, waiting_bytes_most=64), ended(ANA)),
        ),
        *(
            lie("syncer held 65 bytes, allowed are 64", *TWO_LEARNERS, end)
            for end in (
                ended(SYNCER, waiting_bytes_most=65),
                killed(SYNCER, waiting_bytes_most=65),
            )
        ),
    ),
    *by(
        bounds.mailboxes_are_short,
        truth(
            "they are full", ended(ANA, mailbox_most=3), killed(BEN, mailbox_most=3), ended(SYNCER)
        ),
        lie("the mailbox of ana held 4 messages", ended(ANA, mailbox_most=4)),
        lie("the mailbox of ana held 4 messages", killed(ANA, mailbox_most=4)),
    ),
]

NO_DISK, FENCED = "DiskError('no space left')", "FencedError('epoch 9 owns the journal')"
OVER: Line = (SYNCER, Finished("tokens", [], {}))
MERGES = [merged("1.1", 1, digest="y"), merged("1.1"), merged("1.2", digest="x")]
FAILED, FAILED_FENCE = f"syncer failed: {NO_DISK}", f"syncer failed: {FENCED}"
AT_NINE = at(9.0, ended(SYNCER, NO_DISK))
WAS_FULL = struck(1.0, FULL, SYNCER)
MENDED = [WAS_FULL, struck(6.9, DISK_MENDED, SYNCER)]  # long ago
COPIED = 1.0, SUPERVISOR, Promoted(SPARE, SYNCER)
OUTDATED, PASSED = "OutdatedError('an older copy')", "RefusedError('it is passed over')"
SECOND = [began(), struck(1.0, SECOND_SYNCER, SPARE)]


def final(*digests: str) -> Line:
    return WORLD, Final(["1.2", "1.1"], list(digests), finite=True)


ENDS = by(
    bounds.run_ends,
    truth(
        "all end in order, with what was merged last",
        *(began(), *MERGES, OVER, ended(ANA), killed(BEN), final("x", "y")),
        must_finish=True,
    ),
    truth("a run that goes on", began(), *MERGES),
    lie("ana failed: KeyError(3)", ended(ANA, "KeyError(3)")),
    lie("ana did not end", (WORLD, LeftOver(ANA))),
    lie("the run did not end", began(), *MERGES, final("x", "y"), must_finish=True),
    lie("the run did not end", began(), *MERGES, OVER, must_finish=True),
    *(
        lie(
            f"fragment {index} ended with other values than were merged last",
            *(began(), *MERGES, OVER, final("x", "y"), final(*digests)),
            must_finish=True,
        )
        for index, digests in ((0, "zy"), (1, "xx"))
    ),
    *(
        truth(f"a {fault} ends a process", struck(9.0, fault, SYNCER, ANA), AT_NINE)
        for fault in (FULL, FAILING)
    ),
    *(
        lie(FAILED, *lines, AT_NINE)
        for lines in (
            *([], [struck(1.0, SLOW_DISK, SYNCER)], [struck(1.0, FULL, ANA)]),
            *([struck(9.1, FULL, SYNCER)], MENDED, [*MENDED, struck(8.0, DISK_MENDED, SYNCER)]),
            [struck(1.0, FAILING, SYNCER), struck(6.9, SLOW_DISK, SYNCER)],
            [WAS_FULL, *MENDED],
            [WAS_FULL, struck(2.0, FREEZE, ANA), MENDED[1]],
            [struck(0.0, FREEZE, SYNCER), struck(1.0, THAW, SYNCER), *MENDED],
        )
    ),
    truth("mended just now", WAS_FULL, struck(7.0, DISK_MENDED, SYNCER), AT_NINE),
    truth(
        "mended before it was frozen for as long",
        *(WAS_FULL, struck(2.0, FREEZE, SYNCER), struck(4.0, DISK_MENDED, SYNCER)),
        *(struck(5.0, THAW, SYNCER), AT_NINE),
    ),
    truth("bad, sound, and bad again", *MENDED, struck(7.0, FULL, SYNCER), AT_NINE),
    lie(
        "syncer failed: KeyError(DiskError)",
        *(WAS_FULL, at(2.0, ended(SYNCER, "KeyError(DiskError)"))),
    ),
    truth("the older of two syncers is fenced", *SECOND, began(2, SPARE), ended(SYNCER, FENCED)),
    truth("it is before the other tells its epoch", *SECOND, ended(SYNCER, FENCED)),
    truth(
        "the second syncer is fenced by one that started anew",
        *(*SECOND, began(2, SPARE), started(SYNCER), ended(SPARE, FENCED)),
    ),
    truth("neither has told its epoch", SECOND[1], ended(SPARE, FENCED)),
    lie(FAILED_FENCE, began(), struck(1.0, FREEZE, SPARE), ended(SYNCER, FENCED)),
    lie(FAILED_FENCE, began(3), SECOND[1], began(2, SPARE), ended(SYNCER, FENCED)),
    lie(FAILED_FENCE, began(), started(SPARE), began(2, SPARE), ended(SYNCER, FENCED)),
    lie(f"ana failed: {FENCED}", *SECOND, began(2, SPARE), ended(ANA, FENCED)),
    *(
        truth(
            f"one from whose copy another goes on ends with {error}",
            *(began(5), COPIED, began(3, SPARE), ended(SYNCER, error)),
        )
        for error in (FENCED, OUTDATED, PASSED)
    ),
    lie(f"syncer failed: {OUTDATED}", *SECOND, began(2, SPARE), ended(SYNCER, OUTDATED)),
    lie(f"ana failed: {FENCED}", began(), COPIED, ended(ANA, FENCED)),
)


def fresh(waited_s: float = 0.0) -> tuple[str, Entry]:
    return ANA, learners.MomentsFresh(learners.NO_DONOR, waited_s)


def taken(
    donor: str = BEN, pieces: int = 2, waited_s: float = 0.5, actor: str = ANA
) -> tuple[str, Entry]:
    return actor, learners.MomentsTaken(donor=donor, pieces=pieces, seconds=0.1, waited_s=waited_s)


def given(piece: int, to: str = ANA, donor: str = BEN) -> Line:
    return donor, learners.MomentsGiven(to, piece)


def frozen(*times_s: float, name: str = ANA) -> list[Line]:
    """A process freezes and thaws by turns."""
    return [struck(at_s, (FREEZE, THAW)[n % 2], name) for n, at_s in enumerate(times_s)]


BEN_STEPPED = reported(1, actor=BEN, incarnation="1.2")
ANA_STEPPED = reported(10)
NEVER_GIVEN = "ana took pieces {} that ben never gave"
HAD_NONE = "ben gave moments to ana and had none"
TWICE = "ana settled for moments twice, again at 2.000 s"
SAVED_NONE = "ana took moments from its disk, where it had saved none"
WAITED = "ana waited 4.0 s for moments"
MOMENTS = [
    *by(
        bounds.steps_follow_moments,
        truth(
            "processes settle for moments, then step",
            *(started(ANA), started(BEN), reported(0), adopted("1.0", 10), fresh(), ANA_STEPPED),
            *(taken(ANA, 1, actor=BEN), BEN_STEPPED),
            *(started(ANA), taken(), reported(10, incarnation="1.3")),
        ),
        truth("a tape that does not show when they began", fresh(), fresh(), ANA_STEPPED),
        lie(
            "ana stepped before 1.000 s and has not said from where",
            "ana settled for moments twice, again at 3.000 s",
            *(started(ANA), reported(1), reported(2), at(3.0, fresh())),
        ),
        lie(
            "ana stepped before 3.000 s and has not said from where",
            *(started(ANA), fresh(), started(ANA), ANA_STEPPED),
        ),
        lie(
            "ben stepped before 3.000 s and has not said from where",
            *(started(ANA), started(BEN), fresh(), BEN_STEPPED),
        ),
        lie(TWICE, started(ANA), fresh(), taken()),
        lie(TWICE, started(ANA), taken(), fresh()),
    ),
    *by(
        bounds.moments_are_given,
        *(
            lie(NEVER_GIVEN.format(missing), BEN_STEPPED, ANA_STEPPED, *lines, taken())
            for lines, missing in (
                ([given(0)], [1]),
                ([given(1), given(2)], [0]),
                ([given(0, "eve"), given(1, "eve")], [0, 1]),
                ([given(0), started(ANA), given(1)], [0]),
            )
        ),
        lie(
            NEVER_GIVEN.format([0, 1]),
            *(reported(10, actor="eve"), given(0, donor="eve"), given(1, donor="eve"), taken()),
        ),
        *(
            lie(HAD_NONE, *lines, given(0), taken(pieces=1))
            for lines in (
                *([ANA_STEPPED], [reported(0, actor=BEN)]),
                [BEN_STEPPED, started(BEN)],
            )
        ),
        truth(
            "other processes began since the donor stepped",
            *(BEN_STEPPED, started(ANA), given(1), given(0), started("eve"), taken()),
        ),
        truth(
            "another process began since the moments were given to one with a later name",
            *(reported(10, actor="eve"), given(0, BEN, "eve"), started(ANA)),
            taken("eve", 1, actor=BEN),
        ),
        lie("ben gave moments to ben and had none", BEN_STEPPED, given(0, BEN)),
        truth("of its disk", (ANA, learners.MomentsKept("")), taken(learners.DISK)),
        truth("as it ended", (ANA, Exit("drained", failed=False)), taken(learners.DISK)),
        *(
            lie(SAVED_NONE, line, taken(learners.DISK))
            for line in (
                (ANA, learners.MomentsKept("the disk is full")),
                (BEN, learners.MomentsKept("")),
            )
        ),
    ),
    *by(
        bounds.nobody_waits_for_moments,
        truth("as long as they may", fresh(1.0), taken(waited_s=1.0 + 1e-5)),
        lie("ana waited 1.001 s for moments", fresh(1.001)),
        lie("ana waited 1.00002 s for moments", taken(waited_s=1.00002)),
        lie(WAITED, struck(8.9, FREEZE, ANA), (10.0, *fresh(4.0)), struck(12.0, THAW, ANA)),
        *(
            truth(f"frozen from {lines[0][0]} s, {len(lines)}", *lines, (10.0, *fresh(4.0)))
            for lines in (
                *(frozen(6.5, 9.5), frozen(7.0), frozen(6.0, 7.5, 8.0, 9.5)),
                frozen(0.0, 1.0, 6.5, 9.5),
            )
        ),
        *(
            lie(WAITED, *lines, (10.0, *fresh(4.0)))
            for lines in (
                *(frozen(6.5, 9.4), frozen(6.5, 9.5, name=BEN), frozen(3.0, 6.0)),
                *(frozen(4.0, 8.9), [*frozen(6.0), *frozen(6.0, 7.6)]),
                *([*frozen(6.0, 7.0), struck(9.5, THAW, ANA)], [struck(6.0, SLOW_DISK, ANA)]),
                [*frozen(6.0), at(7.0, started(ANA))],
            )
        ),
    ),
]


# --- pulls ----------------------------------------------------------------------------------------


def ticket(round_: int) -> str:
    return f"ana/1.1@1:{round_}"


def opened(round_: int, *names: str) -> Line:
    return SYNCER, Opened(round_, round_ % 2, [LearnerName(name) for name in names], {})


def asked(round_: int) -> Line:
    return SYNCER, Asked(ticket(round_), round_ % 2)


def declined(round_: int) -> Line:
    return SYNCER, Declined(ticket(round_), round_ % 2, "nothing")


def answered(round_: int) -> Line:
    return arrived(ticket(round_))


LINKED, UNLINKED = (SYNCER, Linked(ANA, "1.1")), (SYNCER, Unlinked(ANA))
PULLED = [began(), opened(0, ANA)]
PULLS = by(
    pulls.pulls_end_once,
    truth(
        "each pull is answered, declined, late or void, in order",
        *(began(), LINKED, opened(0, ANA, BEN), opened(1, ANA), answered(0), fate(ticket(0))),
        *(declined(1), asked(1), fate(ticket(1), Fate.LATE), opened(2, ANA), UNLINKED, LINKED),
        *(asked(2), answered(2)),
    ),
    truth(
        "what was overtaken may come late, and counts for nothing",
        *(*PULLED, declined(0), opened(2, ANA), answered(2), fate(ticket(0), Fate.LATE)),
    ),
    truth("a restart ends all", opened(0, ANA), began(2), opened(0, ANA), answered(0)),
    lie("ana was asked for round 0 again, before it had answered", *PULLED, asked(0)),
    lie("the pull of round 0 of ana ended, and was not open", *PULLED, answered(0), declined(0)),
    lie(
        "ana answered round 2 of 0, and never round 0",
        *(*PULLED, opened(1, ANA), answered(1), opened(2, ANA), answered(2)),
    ),
)


def reports(tokens: int, phase: Phase = Phase.STEPPING) -> Line:
    return ANA, learners.Reported("1.1", phase, tokens, 10**6, [])


WHOLE: list[Line] = [began(), LINKED, reports(0), adopted("1.0"), adopted("1.0", fragment=1)]
ABLE: list[Line] = [*WHOLE, reports(10), reports(20), reports(30)]
LATE = {"paced": True, "report_late_s": 2.0}


def without(first: int, count: int) -> list[Line]:
    """So many rounds ask ben alone."""
    return [opened(number, BEN) for number in range(first, first + count)]


ASKED = by(
    pulls.the_able_are_asked,
    truth("four rounds are two cycles", *ABLE, *without(0, 4), **LATE),
    lie(
        "ana owed nothing since 4.0 s, and 4 rounds up to number 4 at 12.0 s did not ask it (None)",
        *(*ABLE, *without(0, 5)),
        **LATE,
    ),
    *(
        truth(f"it is not able: {name}", *lines, *without(0, 7), **LATE)
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
    truth(
        "one is asked in between",
        *(*ABLE, *without(0, 3), opened(3, ANA), *without(4, 4)),
        paced=True,
    ),
    truth("rounds that a learner opens ask it alone", *ABLE, *without(0, 9)),
)

OTHERS = [merged(f"1.{number}", names=BEN) for number in range(1, 23)]
MERGED = by(
    pulls.the_able_are_merged,
    truth("twenty merges are ten cycles", *ABLE, *OTHERS[:20], awaits=True),
    lie(
        "ana stepped, and 21 merges from 3.0 to 28.0 s were without it",
        *(*ABLE, *OTHERS[:21]),
        awaits=True,
    ),
    truth("it takes part", *ABLE, *OTHERS[:11], merged("1.12"), *OTHERS[12:], awaits=True),
    truth("its answers are slow", *ABLE, *OTHERS[:21], awaits=True, report_late_s=99.0),
    truth("before healing", *ABLE, *OTHERS[:21], (WORLD, Healed(1.0, 1.0)), awaits=True),
    truth("a quorum of one waits for nobody", *ABLE, *OTHERS[:21]),
)

CASES: list[Case] = [*FINITE, *MEMORY, *ENDS, *MOMENTS, *PULLS, *ASKED, *MERGED]
