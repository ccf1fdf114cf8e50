"""A host that does not belong to an island is told why, in one sentence."""

import pytest

from islands.island.forming import misfit
from islands.protocol.errors import FAILED, OF_NO_USE
from islands.protocol.messages.multihost import HostHello
from islands.protocol.messages.registry import PROTOCOL

FACTS = {"name": "a", "the version of JAX": "1.2"}


def hello(rank: int = 1, hosts: int = 3, protocol: int = PROTOCOL, **facts: str) -> HostHello:
    """What a host tells that was started like rank 0, but for what is named."""
    return HostHello(protocol, rank, hosts, "far", {**FACTS, **facts})


def refused(told: HostHello, here: dict[int, str] | None = None) -> tuple[str, int]:
    ended = misfit(told, hosts=3, facts=FACTS, here=here or {0: "near"})
    assert ended is not None
    return ended.reason, ended.code


def test_a_host_that_was_started_alike_is_taken() -> None:
    for rank in (2, 1):
        assert misfit(hello(rank), hosts=3, facts=FACTS, here={0: "near"}) is None


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (hello(hosts=4), "--hosts 4, and rank 0 with --hosts 3"),
        (hello(rank=3), "ranks are 0 to 2"),
        (hello(rank=0), "ranks are 0 to 2"),
        (hello(protocol=PROTOCOL + 1), "another version of Islands"),
        (hello(name="b"), "name is 'b' at rank 1 (far), and 'a' at rank 0"),
        (HostHello(PROTOCOL, 1, 3, "far", {}), "name is None"),
    ],
)
def test_a_host_that_was_started_otherwise_must_be_started_anew(told: HostHello, says: str) -> None:
    reason, code = refused(told)
    assert says in reason
    assert code == OF_NO_USE


def test_a_rank_that_is_taken_is_tried_again() -> None:
    reason, code = refused(hello(1), {0: "near", 1: "far, too"})
    assert "rank 1 (far) came while rank 1 (far, too) is here" in reason
    assert code == FAILED
