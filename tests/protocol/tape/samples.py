"""Entries that tests write."""

from islands.protocol.identities import LearnerName, Role
from islands.protocol.tape.member_entries import Admitted, Evicted
from islands.protocol.tape.round_entries import Merged

MERGED = Merged(
    round=3,
    fragment=1,
    version="1.1",
    contributions=1,
    participants=[LearnerName("a")],
    tokens=[40],
    steps=[4],
    weights=[1.0],
    norms=[2.0],
    direction_norm=2.0,
    cosine=0.5,
    digest="x",
    merged_tokens=40,
    clock=6.0,
    asked=1,
    learners=1,
    opened_s=0.1,
    closed_s=0.2,
)


def admitted(name: str = "a", incarnation: str = "1.1", role: Role = Role.LEARNER) -> Admitted:
    return Admitted(name, role, incarnation)


def evicted(name: str = "a", incarnation: str = "1.1") -> Evicted:
    return Evicted(name, incarnation, "silent")
