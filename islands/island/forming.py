"""The forming of an island: which hosts belong to it, and what its end is to each host.

An island's processes end together. Only the host whose process caused that counts it as a failure
of its own (`host_watchdog.py`): otherwise each would be given up for the failures of all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from islands.island.host_watchdog import BY_ANOTHER
from islands.learner.compute import Arrival
from islands.protocol.errors import FAILED, OF_NO_USE, IslandsError, exit_code_of
from islands.protocol.messages.multihost import HostHello
from islands.protocol.messages.registry import PROTOCOL

NOBODY = -1
"""In place of a rank: no process has failed, as where a host was asked to end."""

CONSEQUENCE_S = 1.0
"""An error of JAX waits for so long for the news that a process was lost, of which it may come."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Why the process of a host ends, and with which exit code (`islands.protocol.errors`).

    `rank` is the host whose process caused it, or `NOBODY`; None if that is not known.
    """

    reason: str
    code: int
    rank: int | None = None

    @classmethod
    def of(cls, error: BaseException, rank: int | None = None) -> Self:
        """Return the end by an error; the lines that help to mend it come first."""
        detail = error.detail if isinstance(error, IslandsError) else ""
        return cls(f"{detail}{str(error) or repr(error)}", exit_code_of(error), rank)

    def code_at(self, rank: int) -> int:
        """Return the exit code of a host's process, which tells if another host caused its end."""
        own = self.rank is None or self.rank == rank
        return self.code if own or self.code != FAILED else BY_ANOTHER


def consequence_s(error: BaseException) -> float:
    """Return how long an error waits for news of which it may be a consequence.

    A collective that was broken off by the loss of a process may fail before its link closes.
    """
    causes = (error, error.__cause__)
    perhaps = any(isinstance(each, RuntimeError) for each in causes)
    return CONSEQUENCE_S if perhaps else 0.0


def misfit(
    hello: HostHello, *, hosts: int, facts: Mapping[str, str], here: Mapping[int, str]
) -> Ended | None:
    """Return why a host is refused, or None if it is taken."""
    who = named(hello.rank, hello.host)
    if hello.protocol != PROTOCOL:
        return _mistake(f"{who} runs another version of Islands than rank 0: install the same")
    if hello.hosts != hosts:
        return _mistake(
            f"{who} was started with --hosts {hello.hosts}, and rank 0 with --hosts {hosts}: "
            "start all hosts of an island with the same number"
        )
    if not 1 <= hello.rank < hosts:
        return _mistake(f"{who} is none of this island, whose ranks are 0 to {hosts - 1}")
    for what, ours in facts.items():
        theirs = hello.facts.get(what)
        if theirs != ours:
            return _mistake(
                f"{what} is {theirs!r} at {who}, and {ours!r} at rank 0: start all hosts of an "
                "island alike"
            )
    if hello.rank in here:  # what was there may be lost, and found to be lost in some seconds
        return Ended(
            f"{who} came while {named(hello.rank, here[hello.rank])} is here: give each host a "
            "--rank of its own",
            FAILED,
        )
    return None


def disagreement(who: str, theirs: Arrival, own: Arrival) -> str:
    """Return the sentence that a host's loop takes another way than rank 0's."""
    return (
        f"{who} came to boundary {theirs.boundary} after {theirs.steps} steps {theirs.to}, and "
        f"rank 0 after {own.steps} steps {own.to}: all processes must come to the same boundaries, "
        "and leave the run at the same place of their loops"
    )


def named(rank: int, host: str) -> str:
    return f"rank {rank} ({host})"


def _mistake(reason: str) -> Ended:
    return Ended(reason, OF_NO_USE)
