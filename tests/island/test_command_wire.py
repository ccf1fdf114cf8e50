"""Commands become messages and commands again, on a host of the same version or another."""

import msgspec
import pytest

from islands.island.agreement import End, LogEntry
from islands.island.command_wire import KINDS, arrays_of, body_of, entry_of, with_arrays
from islands.learner.commands import BookCopy
from islands.protocol.errors import InvariantError
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner.actions import (
    AdoptValue,
    AllowSteps,
    LoadMoments,
    PlanSnapshots,
    ReadMoments,
    ReadValue,
    ResetMoments,
    TellPosition,
)
from islands.protocol.messages.training import FragmentRequest, Merged
from islands.protocol.settings.run import Precision

ZERO, FIRST = FragmentIndex(0), Incarnation(1, 2)
VALUE, SENT = memoryview(b"\0" * 16), memoryview(b"\1" * 8)

ENTRIES: tuple[LogEntry, ...] = (
    AdoptValue(ZERO, Version(1, 2), 3.5, 1, FIRST, VALUE),
    AdoptValue(
        *(ZERO, Version(1, 2), 3.5, 1, FIRST, VALUE),
        carry=True,
        merged=Merged(1, 2, 3, 4),
        sent=SENT,
        local_share=0.5,
        at_steps=7,
        sent_precision=Precision.BFLOAT16,
    ),
    AdoptValue(ZERO, Version(1, 2), 3.5, 1, FIRST, VALUE, in_shares=True),
    AdoptValue(ZERO, Version(1, 2), 3.5, 1, FIRST, VALUE, sent=SENT, in_shares=True),
    AllowSteps(100, (Lease(0, 1, 2), Lease(0, 2, 0, done=True)), 3, 9),
    LoadMoments((VALUE, SENT)),
    PlanSnapshots((ZERO, FragmentIndex(3)), (4, 5)),
    ReadMoments(3, "peer"),
    ReadValue(FragmentRequest(1, ZERO, 2), FIRST),
    ResetMoments(),
    TellPosition(b"\0\xff" * 8),
    BookCopy(4),
    End(),
)


@pytest.mark.parametrize(
    "entry", ENTRIES, ids=[f"{n} {type(each).__name__}" for n, each in enumerate(ENTRIES)]
)
def test_a_command_arrives_as_it_was_issued(entry: LogEntry) -> None:
    """Its fields over msgpack, and its arrays beside them, in their order."""
    body = msgspec.msgpack.decode(msgspec.msgpack.encode(body_of(entry)))
    arrays = arrays_of(entry)
    arrived = entry_of(type(entry).__name__, body, arrays)
    assert arrived == entry
    assert arrays_of(arrived) == arrays


def test_every_command_of_a_boundary_can_be_issued() -> None:
    """But for those of learners that gossip, each of which is on one host."""
    assert {type(entry).__name__ for entry in ENTRIES} == set(KINDS)


def test_a_value_is_sent_as_a_share() -> None:
    """Its place is taken by the share; what else a command holds stays."""
    whole = ENTRIES[1]
    cut = with_arrays(whole, (VALUE[:4], SENT))
    assert isinstance(cut, AdoptValue)
    assert (bytes(cut.payload), cut.sent, cut.version) == (b"\0" * 4, SENT, Version(1, 2))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("Unheard", {}),
        ("AllowSteps", {"until_tokens": "many", "leases": []}),
        ("AllowSteps", {"leases": []}),
        ("AllowSteps", {"until_tokens": 1, "leases": [], "unheard": 1}),
    ],
)
def test_a_command_of_another_version_is_refused_in_a_sentence(
    kind: str, body: dict[str, object]
) -> None:
    """It says which command."""
    with pytest.raises(InvariantError, match=kind):
        entry_of(kind, body, ())
