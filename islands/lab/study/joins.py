"""Learners that join in the course of a trial, as scavenged compute does.

They are counted at the end of a cell's names: of four learners and two that join, the latter are
`learner-4` and `learner-5`. A **stage** is what lies between two joins: the share of the budget at
which it begins, and the learners that train in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from islands.lab.world.world import LearnerHost
from islands.protocol.errors import SettingsError

Hosts = Mapping[str, LearnerHost]


@dataclass(frozen=True, slots=True)
class Join:
    """Learners that join at one moment, and stay.

    Args:
        learners: how many.
        at_share: share of the budget's tokens that is processed when they start.
    """

    learners: int = 1
    at_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a trial in which the same learners train.

    Args:
        begins: share of the budget's tokens that is processed before it.
        share: share of the tokens that is processed in it.
        hosts: the machines of its learners, by name.
    """

    begins: float
    share: float
    hosts: Hosts

    @property
    def tokens_per_s(self) -> float:
        """Tokens that all of them process in a second."""
        return sum(host.batch_tokens / host.step_s for host in self.hosts.values())


def stages_of(hosts: Hosts, joins: Sequence[Join]) -> list[Stage]:
    """Return the stages of a trial, first to last.

    Args:
        hosts: machines of all learners, those that join later at the end and in that order.
        joins: of the cell.
    """
    ordered = sorted(joins, key=lambda join: join.at_share)
    names = list(hosts)
    first = len(names) - sum(join.learners for join in ordered)
    present = accumulate((join.learners for join in ordered), initial=first)
    begins = [0.0, *(join.at_share for join in ordered), 1.0]
    return [
        Stage(begin, end - begin, {name: hosts[name] for name in names[:count]})
        for (begin, end), count in zip(pairwise(begins), present, strict=True)
    ]


def check_joins(joins: Sequence[Join], place: str, *, data_parallel: bool) -> None:
    """Refuse joins that cannot be.

    Raises:
        SettingsError: the sentence names the key.
    """
    if joins and data_parallel:
        raise SettingsError(
            f"{place}.joins is set, and data_parallel too; that is one learner, which nobody joins"
        )
    for join in joins:
        if join.learners < 1:
            raise SettingsError(
                f"{place}.joins has {join.learners} learners; it must be at least 1"
            )
        if not 0 < join.at_share < 1:
            raise SettingsError(
                f"{place}.joins has at_share {join.at_share}; it must be above 0, and below 1"
            )
