"""What a hub without a task answers before it has a run, and what it believes of a layout."""

import msgspec
import pytest

from islands.layout.leaves import Leaf
from islands.layout.loop_layout import (
    DIMENSIONS_MAX,
    LEAVES_MAX,
    PATH_MAX,
    LoopLayout,
    encode_layout,
)
from islands.model.workload import OwnLoop
from islands.protocol.errors import SettingsError
from islands.protocol.identities import Role
from islands.protocol.messages.control import Command, Verb
from islands.protocol.messages.membership import (
    LayoutTaken,
    LayoutTold,
    LayoutWanted,
    Refused,
    RunSpecRequest,
)
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.settings.run import RunSettings
from islands.run.first_layout import answer
from messaging.envelope import Envelope

LEAVES = (Leaf("embedding", (10, 4)), Leaf("layers", (3, 4, 4), stack=3))
OTHERS = (Leaf("other", (2, 2)),)
FIRST = LoopLayout(LEAVES)


def check(layout: LoopLayout) -> None:
    OwnLoop(layout).plan(RunSettings(fragments=2))


def heard(body: object, payload: bytes | None = None) -> Envelope:
    return Envelope("ana", "hub", 1, body, () if payload is None else (memoryview(payload),))


def told(leaves: tuple[Leaf, ...], protocol: int = PROTOCOL) -> Envelope:
    return heard(LayoutTold(protocol, "ana"), encode_layout(LoopLayout(tuple(leaves))))


def test_the_first_layout_is_the_runs() -> None:
    asked = heard(RunSpecRequest(PROTOCOL, Role.LEARNER, "ana"))
    assert answer(asked, None, check) == (LayoutWanted("ana"), None)
    assert answer(told(LEAVES), None, check) == (LayoutTaken("ana"), FIRST)
    assert answer(told(OTHERS), FIRST, check) == (LayoutTaken("ana"), FIRST)


def test_others_are_told_what_is_waited_for() -> None:
    for envelope in (
        heard(Command(Verb.PAUSE, "")),
        heard(LayoutTold(PROTOCOL, "ana")),
        told(LEAVES, PROTOCOL + 1),
        heard(RunSpecRequest(PROTOCOL + 1, Role.LEARNER, "ana")),
    ):
        refused, taken = answer(envelope, None, check)
        assert isinstance(refused, Refused)
        assert refused.retry == (refused.reason.startswith("this hub waits"))
        assert taken is None


@pytest.mark.parametrize(
    ("leaves", "why"),
    [
        ((), "no trainable"),
        ((*LEAVES, LEAVES[0]), "twice"),
        ((Leaf("step", (), "int32"),), "float"),
        ((Leaf("a" * (PATH_MAX + 1), (2,)),), "characters"),
        ((Leaf("a\nb", (2,)),), "characters"),
        ((Leaf("a", (-2, -2)),), "shape"),
        ((Leaf("a", (1,) * (DIMENSIONS_MAX + 1)),), "shape"),
        ((Leaf("a", (4,), stack=0),), "stack of 0"),
        ((Leaf("a", (4,), stack=5),), "stack of 5"),
        ((Leaf("a", (4, 2), stack=3),), "stack of 3"),
        ((Leaf("a", (1 << 31, 1 << 31)),), "parameters"),
        ((Leaf("a", (LEAVES_MAX + 1,), stack=LEAVES_MAX + 1),), "tensors"),
    ],
)
def test_a_layout_that_no_model_has_is_refused(leaves: tuple[Leaf, ...], why: str) -> None:
    refused, taken = answer(told(leaves), None, check)
    assert isinstance(refused, Refused)
    assert why in refused.reason
    assert taken is None


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"leaves": [{"path": 3}]}', b"\xff", b'{"x": ' + b"[" * 100_000],
    ids=["nothing", "list", "other", "no text", "deep"],
)
def test_what_is_no_layout_is_refused(text: bytes) -> None:
    refused, taken = answer(heard(LayoutTold(PROTOCOL, "ana"), text), None, check)
    assert isinstance(refused, Refused)
    assert taken is None


def test_there_is_no_plan_before_the_first_has_come() -> None:
    with pytest.raises(SettingsError, match="task is not set"):
        OwnLoop().plan(RunSettings())
    assert msgspec.json.decode(encode_layout(FIRST))["leaves"][1]["stack"] == 3
