"""Tapes about bounds: finite values, memory, mailboxes, the end of the run, inner moments."""

from math import inf, nan

from islands.lab.checker import bounds
from islands.protocol.identities import Role
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.learner_entries import (
    DISK,
    NO_DONOR,
    MomentsFresh,
    MomentsGiven,
    MomentsKept,
    MomentsTaken,
)
from islands.protocol.tape.member_entries import ProcessEnded, ProcessStarted
from islands.protocol.tape.process_entries import Exit
from islands.protocol.tape.round_entries import Finished
from islands.protocol.tape.simulation_entries import (
    DISK_MENDED,
    FAILING,
    FREEZE,
    FULL,
    SECOND_SYNCER,
    SLOW_DISK,
    THAW,
    Fault,
    Final,
    LeftOver,
    ProcessKilled,
)
from tests.lab.checker.told import (
    ANA,
    BEN,
    SPARE,
    SYNCER,
    WORLD,
    Tape,
    Told,
    admitted,
    adopted,
    began,
    by,
    merged,
    reported,
    told,
)


def ended(name: str, error: str = "", **held: int) -> Told:
    return WORLD, ProcessEnded(name, error=error, **held)  # type: ignore[arg-type]


def killed(name: str, **held: int) -> Told:
    return WORLD, ProcessKilled(name, **{"silent": False, "mailbox_most": 0, **held})  # type: ignore[arg-type]


def struck(at_s: float, fault: str, *names: str) -> Told:
    return at_s, WORLD, Fault(fault, list(names))


def started(name: str) -> Told:
    return WORLD, ProcessStarted(name)


FINITE = by(
    bounds.values_are_finite,
    told("all is finite", [merged("1.1"), (WORLD, Final(["1.1"], ["x"], finite=True))]),
    *(
        told(
            f"{what} of a merge is not finite",
            [merged("1.1", **changed)],
            f"fragment 0: merging 1.1 measured {measured}",
        )
        for what, changed, measured in (
            ("a norm", {"norms": [2.0, nan]}, [2.0, None, 2.0, 0.5]),
            ("the direction's norm", {"direction_norm": inf}, [2.0, None, 0.5]),
            ("the cosine", {"cosine": None}, [2.0, 2.0, None]),
        )
    ),
    told(
        "the final values are not finite",
        [(7.0, WORLD, Final(["1.1"], ["x"], finite=False))],
        "the run ended with values that are not finite, at 7.000 s",
    ),
)

MEMORY = [
    *by(
        bounds.contributions_fit,
        told(
            "as many bytes wait as two open rounds of two learners have",
            [
                *(admitted("1.1"), admitted("1.2", BEN), admitted("1.3", BEN)),
                *(admitted("1.4", "eve", Role.OBSERVER), ended(SYNCER, waiting_bytes_most=64)),
                *(killed(SYNCER, waiting_bytes_most=64), ended(ANA)),
            ],
        ),
        *(
            told(
                f"one byte more waits in one that {how}",
                [
                    *(admitted("1.1"), admitted("1.2", BEN), admitted("1.3", BEN)),
                    *(admitted("1.4", "eve", Role.OBSERVER), end),
                ],
                "syncer held 65 bytes, allowed are 64",
            )
            for how, end in (
                ("ended", ended(SYNCER, waiting_bytes_most=65)),
                ("was killed", killed(SYNCER, waiting_bytes_most=65)),
            )
        ),
    ),
    *by(
        bounds.mailboxes_are_short,
        told(
            "mailboxes are as full as they may be",
            [ended(ANA, mailbox_most=3), killed(BEN, mailbox_most=3), ended(SYNCER)],
        ),
        *(
            told(
                f"a mailbox of one that {how} held one more",
                [end],
                "the mailbox of ana held 4 messages",
            )
            for how, end in (
                ("ended", ended(ANA, mailbox_most=4)),
                ("was killed", killed(ANA, mailbox_most=4)),
            )
        ),
    ),
]

NO_DISK = "DiskError('no space left')"
FENCED = "FencedError('epoch 9 owns the journal')"
OVER: Told = (SYNCER, Finished("tokens", [], {}))
LAST = (WORLD, Final(["1.2", "1.1"], ["x", "y"], finite=True))
MERGES = [merged("1.1", 1, digest="y"), merged("1.1"), merged("1.2", digest="x")]


def failed(at_s: float, name: str, error: str) -> Told:
    return at_s, WORLD, ProcessEnded(name, error=error)


FAILED_DISK = f"syncer failed: {NO_DISK}"
FAILED_FENCE = f"syncer failed: {FENCED}"
ENDS = by(
    bounds.run_ends,
    told(
        "all end in order, with what was merged last",
        [began(), *MERGES, OVER, ended(ANA), killed(BEN), LAST],
        must_finish=True,
    ),
    told("a run that goes on", [began(), *MERGES]),
    told("a process fails", [ended(ANA, "KeyError(3)")], "ana failed: KeyError(3)"),
    told("a process does not end", [(WORLD, LeftOver(ANA))], "ana did not end"),
    *(
        told(f"there is no {what}", lines, "the run did not end", must_finish=True)
        for what, lines in (
            ("end of the run", [began(), *MERGES, LAST]),
            ("final value", [began(), *MERGES, OVER]),
        )
    ),
    *(
        told(
            f"fragment {index} ends with another value",
            [began(), *MERGES, OVER, LAST, (WORLD, Final(["1.2", "1.1"], digests, finite=True))],
            f"fragment {index} ended with other values than were merged last",
            must_finish=True,
        )
        for index, digests in ((0, ["z", "y"]), (1, ["x", "x"]))
    ),
    *(
        told(
            f"a process ends for want of its disk at {at_s} s, with a {fault}",
            [struck(1.0, fault, SYNCER, ANA), failed(at_s, SYNCER, NO_DISK)],
        )
        for fault, at_s in ((FULL, 1.0), (FULL, 9.0), (FAILING, 9.0))
    ),
    *(
        told(
            f"a process ends for want of its disk, {what}",
            [*lines, failed(9.0, SYNCER, NO_DISK)],
            FAILED_DISK,
        )
        for what, lines in (
            ("which had no fault", []),
            ("which was slow", [struck(1.0, SLOW_DISK, SYNCER)]),
            ("and another's was full", [struck(1.0, FULL, ANA)]),
            ("before it was full", [struck(9.1, FULL, SYNCER)]),
            (
                "mended long ago",
                [struck(1.0, FULL, SYNCER), struck(6.9, DISK_MENDED, SYNCER)],
            ),
            (
                "which only became slow, long ago",
                [struck(1.0, FAILING, SYNCER), struck(6.9, SLOW_DISK, SYNCER)],
            ),
            (
                "mended twice, long ago",
                [
                    *(struck(1.0, FULL, SYNCER), struck(2.0, DISK_MENDED, SYNCER)),
                    struck(8.0, DISK_MENDED, SYNCER),
                ],
            ),
            (
                "full twice, and mended once, long ago",
                [
                    *(struck(1.0, FULL, SYNCER), struck(2.0, FULL, SYNCER)),
                    struck(6.9, DISK_MENDED, SYNCER),
                ],
            ),
            (
                "mended long ago, while another was frozen",
                [
                    *(struck(1.0, FULL, SYNCER), struck(2.0, FREEZE, ANA)),
                    struck(6.9, DISK_MENDED, SYNCER),
                ],
            ),
            (
                "mended long ago, and frozen before it was full",
                [
                    *(struck(0.0, FREEZE, SYNCER), struck(1.0, THAW, SYNCER)),
                    *(struck(1.0, FULL, SYNCER), struck(6.9, DISK_MENDED, SYNCER)),
                ],
            ),
        )
    ),
    *(
        told(f"a process ends for want of its disk, {what}", [*lines, failed(9.0, SYNCER, NO_DISK)])
        for what, lines in (
            (
                "mended just now",
                [struck(1.0, FULL, SYNCER), struck(7.0, DISK_MENDED, SYNCER)],
            ),
            (
                "mended before it was frozen for as long",
                [
                    *(struck(1.0, FULL, SYNCER), struck(2.0, FREEZE, SYNCER)),
                    *(struck(4.0, DISK_MENDED, SYNCER), struck(5.0, THAW, SYNCER)),
                ],
            ),
            (
                "which was bad, sound, and is bad again",
                [
                    *(struck(1.0, FULL, SYNCER), struck(2.0, DISK_MENDED, SYNCER)),
                    struck(3.0, FULL, SYNCER),
                ],
            ),
        )
    ),
    told(
        "a process fails by something else while its disk is full",
        [struck(1.0, FULL, SYNCER), failed(2.0, SYNCER, "KeyError(DiskError)")],
        "syncer failed: KeyError(DiskError)",
    ),
    told(
        "the older of two syncers is fenced",
        [began(), struck(1.0, SECOND_SYNCER, SPARE), began(2, SPARE), ended(SYNCER, FENCED)],
    ),
    told(
        "the older of two syncers is fenced before the other tells its epoch",
        [began(), struck(1.0, SECOND_SYNCER, SPARE), ended(SYNCER, FENCED)],
    ),
    told(
        "the second syncer is fenced by one that started anew",
        [
            *(began(), struck(1.0, SECOND_SYNCER, SPARE), began(2, SPARE), started(SYNCER)),
            ended(SPARE, FENCED),
        ],
    ),
    told(
        "a syncer is fenced by another, before either tells its epoch",
        [struck(1.0, SECOND_SYNCER, SPARE), ended(SPARE, FENCED)],
    ),
    told(
        "a syncer is fenced after another process was frozen",
        [began(), struck(1.0, FREEZE, SPARE), ended(SYNCER, FENCED)],
        FAILED_FENCE,
    ),
    told("the only syncer is fenced", [began(), ended(SYNCER, FENCED)], FAILED_FENCE),
    told(
        "the newer of two syncers is fenced",
        [began(3), struck(1.0, SECOND_SYNCER, SPARE), began(2, SPARE), ended(SYNCER, FENCED)],
        FAILED_FENCE,
    ),
    told(
        "one is fenced by a process that is no syncer",
        [began(), started(SPARE), began(2, SPARE), ended(SYNCER, FENCED)],
        FAILED_FENCE,
    ),
    told(
        "a learner is fenced, as no journal is its own",
        [began(), struck(1.0, SECOND_SYNCER, SPARE), began(2, SPARE), ended(ANA, FENCED)],
        f"ana failed: {FENCED}",
    ),
)


def fresh(waited_s: float = 0.0) -> tuple[str, Entry]:
    return ANA, MomentsFresh(NO_DONOR, waited_s)


def taken(donor: str = BEN, pieces: int = 2, waited_s: float = 0.5) -> tuple[str, Entry]:
    """Ana begins with moments of another, or of its disk."""
    return ANA, MomentsTaken(donor=donor, pieces=pieces, seconds=0.1, waited_s=waited_s)


def given(piece: int, to: str = ANA, donor: str = BEN) -> Told:
    return donor, MomentsGiven(to, piece)


BEN_STEPPED = reported(1, actor=BEN, incarnation="1.2")
NEVER_GIVEN = "ana took pieces {} that ben never gave"
MOMENTS = [
    *by(
        bounds.steps_follow_moments,
        told(
            "processes settle for moments, then step",
            [
                *(started(ANA), started(BEN), reported(0), fresh(), reported(10)),
                *((BEN, MomentsTaken(donor=ANA, pieces=1, seconds=0.0, waited_s=0.0)), BEN_STEPPED),
                *(started(ANA), taken(), reported(10, incarnation="1.3")),
            ],
        ),
        told(
            "a process has adopted a value before it settles",
            [started(ANA), adopted("1.0", 10), fresh(), reported(10)],
        ),
        told("a tape that does not show when processes began", [fresh(), fresh(), reported(10)]),
        told(
            "a process steps and settles later",
            [started(ANA), reported(1), reported(2), (3.0, *fresh())],
            "ana stepped before 1.000 s and has not said from where",
            "ana settled for moments twice, again at 3.000 s",
        ),
        told(
            "a process that was started anew steps with what it had",
            [started(ANA), fresh(), started(ANA), reported(10)],
            "ana stepped before 3.000 s and has not said from where",
        ),
        told(
            "another process settles",
            [started(ANA), started(BEN), fresh(), BEN_STEPPED],
            "ben stepped before 3.000 s and has not said from where",
        ),
        *(
            told(
                f"a process settles for {what}",
                [started(ANA), first, second],
                "ana settled for moments twice, again at 2.000 s",
            )
            for what, first, second in (
                ("fresh moments twice", fresh(), fresh()),
                ("fresh moments, then takes some", fresh(), taken()),
                ("a donor's moments, then for fresh ones", taken(), fresh()),
            )
        ),
    ),
    *by(
        bounds.moments_are_given,
        told(
            "a donor that has stepped gives all pieces", [BEN_STEPPED, given(1), given(0), taken()]
        ),
        *(
            told(
                f"the donor gave {what}",
                [BEN_STEPPED, reported(10), *lines, taken()],
                NEVER_GIVEN.format(missing),
            )
            for what, lines, missing in (
                ("nothing", [], [0, 1]),
                ("the first piece alone", [given(0)], [1]),
                ("the last piece alone, and one more", [given(1), given(2)], [0]),
                ("them to another", [given(0, "eve"), given(1, "eve")], [0, 1]),
                ("them before the process began", [given(0), started(ANA), given(1)], [0]),
            )
        ),
        told(
            "another donor gave them",
            [reported(10, actor="eve"), given(0, donor="eve"), given(1, donor="eve"), taken()],
            NEVER_GIVEN.format([0, 1]),
        ),
        *(
            told(
                f"the donor {what}",
                [*lines, given(0), taken(pieces=1)],
                "ben gave moments to ana and had none",
            )
            for what, lines in (
                ("never reported", [reported(10)]),
                ("has not stepped", [reported(0, actor=BEN)]),
                ("was started anew since it stepped", [BEN_STEPPED, started(BEN)]),
            )
        ),
        told(
            "another process began since the donor stepped",
            [BEN_STEPPED, started(ANA), given(0), started("eve"), taken(pieces=1)],
        ),
        told(
            "another process began since the moments were given to one with a later name",
            [
                *(reported(10, actor="eve"), given(0, BEN, "eve"), started(ANA)),
                (BEN, MomentsTaken(donor="eve", pieces=1, seconds=0.1, waited_s=0.5)),
            ],
        ),
        told(
            "one gives moments to itself",
            [BEN_STEPPED, given(0, BEN)],
            "ben gave moments to ben and had none",
        ),
        *(
            told(
                f"a learner takes the moments of its disk, {what}", [line, taken(DISK)], *sentences
            )
            for what, line, sentences in (
                ("which it saved", (ANA, MomentsKept("")), ()),
                ("which it saved as it ended", (ANA, Exit("drained", failed=False)), ()),
                *(
                    (what, line, ("ana took moments from its disk, where it had saved none",))
                    for what, line in (
                        ("where it could save none", (ANA, MomentsKept("the disk is full"))),
                        ("where another saved its own", (BEN, MomentsKept(""))),
                        ("where nobody saved any", reported(10)),
                    )
                ),
            )
        ),
    ),
    *by(
        bounds.nobody_waits_for_moments,
        told("processes wait as long as they may", [fresh(1.0), taken(waited_s=1.0 + 1e-5)]),
        *(
            told(
                f"a process waits too long for {what}",
                [line],
                f"ana waited {waited_s} s for moments",
            )
            for what, line, waited_s in (
                ("nothing", fresh(1.001), 1.001),
                ("a donor", taken(waited_s=1.00002), 1.00002),
            )
        ),
        told(
            "a process waits for 4 s, and is frozen a while beyond that",
            [struck(8.9, FREEZE, ANA), (10.0, *fresh(4.0)), struck(12.0, THAW, ANA)],
            "ana waited 4.0 s for moments",
        ),
        *(
            told(
                f"a process waits for 4 s, {what}",
                [*lines, (10.0, *fresh(4.0))],
                *(() if right else ("ana waited 4.0 s for moments",)),
            )
            for what, right, lines in (
                ("frozen for 3 s", True, [struck(6.5, FREEZE, ANA), struck(9.5, THAW, ANA)]),
                ("frozen for 2.9 s", False, [struck(6.5, FREEZE, ANA), struck(9.4, THAW, ANA)]),
                ("another frozen", False, [struck(6.5, FREEZE, BEN), struck(9.5, THAW, BEN)]),
                ("frozen before", False, [struck(3.0, FREEZE, ANA), struck(6.0, THAW, ANA)]),
                ("frozen half before", False, [struck(4.0, FREEZE, ANA), struck(8.9, THAW, ANA)]),
                ("frozen since 3 s", True, [struck(7.0, FREEZE, ANA)]),
                (
                    "frozen in two spans",
                    True,
                    [
                        *(struck(6.0, FREEZE, ANA), struck(7.5, THAW, ANA)),
                        *(struck(8.0, FREEZE, ANA), struck(9.5, THAW, ANA)),
                    ],
                ),
                (
                    "frozen once, though told twice",
                    False,
                    [
                        *(struck(6.0, FREEZE, ANA), struck(6.0, FREEZE, ANA)),
                        struck(7.6, THAW, ANA),
                    ],
                ),
                (
                    "thawed twice",
                    False,
                    [
                        *(struck(6.0, FREEZE, ANA), struck(7.0, THAW, ANA)),
                        struck(9.5, THAW, ANA),
                    ],
                ),
                (
                    "frozen until it was started anew",
                    False,
                    [struck(6.0, FREEZE, ANA), (7.0, WORLD, ProcessStarted(ANA))],
                ),
                (
                    "frozen for 3 s, and long before",
                    True,
                    [
                        *(struck(0.0, FREEZE, ANA), struck(1.0, THAW, ANA)),
                        *(struck(6.5, FREEZE, ANA), struck(9.5, THAW, ANA)),
                    ],
                ),
                ("with a slow disk", False, [struck(6.0, SLOW_DISK, ANA)]),
            )
        ),
    ),
]

TAPES: list[Tape] = [*FINITE, *MEMORY, *ENDS, *MOMENTS]
