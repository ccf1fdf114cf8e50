"""Cases of checkpoints: that they are whole, one moment of the run, and stay."""

from islands.lab.checker import order
from islands.protocol.identities import SUPERVISOR
from islands.protocol.tape.member_entries import Promoted
from islands.protocol.tape.process_entries import Checkpointed
from islands.protocol.tape.round_entries import Row
from islands.protocol.tape.simulation_entries import Kept
from tests.lab.checker.cases import (
    SPARE,
    SYNCER,
    WORLD,
    Line,
    began,
    by,
    lie,
    resumed,
    truth,
    wrote,
)

BALANCED, UNBALANCED = Row(9, 9, *[0] * 6), Row(9, 8, *[0] * 6)
MOMENTS = [began(), wrote(1, 0, "1.0"), wrote(2, 1, "1.0"), wrote(3, 0, "1.1"), wrote(4)]


def held(
    sequence: int, *versions: str, epoch: int = 1, fault: str = "", row: Row = BALANCED
) -> Line:
    name = f"{epoch}-{sequence}"
    return WORLD, Kept(name, fault, epoch, sequence, list(versions), ["x"], [row])


def reported(name: str) -> Line:
    return SYNCER, Checkpointed(1, 2, 3, 0.1, "every 1 merges", f"checkpoints/{name}")


ARE_MOMENTS = by(
    order.checkpoints_are_moments,
    truth(
        "each holds what its record made durable",
        *(*MOMENTS, held(2, "1.0", "1.0"), held(3, "1.1", "1.0"), held(4, "1.1", "1.0")),
    ),
    truth(
        "a restart goes on from the record that it takes up",
        *(*MOMENTS, resumed(2, 2), wrote(3, 1, "2.1"), held(3, "1.0", "2.1", epoch=2)),
    ),
    truth(
        "a run that begins anew has a beginning of its own",
        *(*MOMENTS, began(2), wrote(1, 0, "2.0"), held(1, "2.0", epoch=2)),
    ),
    truth(
        "one of a syncer whose standby goes on is a moment of its own",
        *(*MOMENTS, (SUPERVISOR, Promoted(SPARE, SYNCER)), resumed(9, 4, SPARE)),
        *(wrote(5, 0, "1.2"), held(5, "1.2", "1.0")),
    ),
    lie("checkpoint 1-3 is not whole: it lacks a file", *MOMENTS, held(3, fault="it lacks a file")),
    lie("checkpoint 1-3 holds 1.0, 1.0, which are no moment", *MOMENTS, held(3, "1.0", "1.0")),
    lie("checkpoint 1-2 holds 1.1, 1.0, which are no moment", *MOMENTS, held(2, "1.1", "1.0")),
    lie("checkpoint 1-9 holds 1.1, 1.0, which are no moment", *MOMENTS, held(9, "1.1", "1.0")),
    lie(
        "checkpoint 2-4 holds 1.1, 1.0, which are no moment",
        *(*MOMENTS, resumed(2, 4), held(4, "1.1", "1.0", epoch=2)),
    ),
    lie(
        "checkpoint 2-3 holds 1.1, 2.1, which are no moment",
        *(*MOMENTS, resumed(2, 2), wrote(3, 1, "2.1"), held(3, "1.1", "2.1", epoch=2)),
    ),
    lie(
        "checkpoint 1-5 holds 1.2, 1.0, which are no moment",
        *(*MOMENTS, began(2, SPARE), wrote(5, 0, "1.2"), held(5, "1.2", "1.0")),
    ),
    lie(
        "checkpoint 1-3: its ledger does not balance",
        *(*MOMENTS, held(3, "1.1", "1.0", row=UNBALANCED)),
    ),
)

STAYING = by(
    order.checkpoints_stay,
    truth("nobody takes any"),
    truth("the newest is there", reported("1-4"), reported("1-12"), (9.0, *held(12))),
    truth(
        "one that a newer syncer stored is newer",
        *(reported("2-3"), reported("1-12"), (9.0, *held(3, epoch=2)), (9.0, *held(12))),
    ),
    truth("a newer one has taken its place", reported("1-4"), (9.0, *held(5))),
    lie("checkpoint (1, 4) was reported, and the newest in the store is (0, 0)", reported("1-4")),
    lie(
        "checkpoint (1, 12) was reported, and the newest in the store is (1, 4)",
        *(reported("1-12"), reported("1-4"), (8.0, *held(12)), (9.0, *held(4))),
    ),
    lie(
        "checkpoint (1, 12) was reported, and the newest in the store is (1, 5)",
        *(reported("1-12"), (9.0, *held(5)), (9.0, *held(4))),
    ),
)

CASES = [*ARE_MOMENTS, *STAYING]
