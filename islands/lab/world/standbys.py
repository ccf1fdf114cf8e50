"""Standbys of a simulated syncer, each on a host of its own; one may go on there as the syncer."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from islands.actors.ports import Worker
from islands.actors.role_actor import Context
from islands.files.disk import Disk
from islands.keeping.standby import Hooks, StandbyActor
from islands.keeping.standbys import Standbys
from islands.protocol.identities import SYNCER
from islands.protocol.membership import Credentials
from islands.syncer.journal import Follower


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many standbys a run has, and when each takes over; None: on an operator's word."""

    count: int = 1
    after_s: float | None = 1.0


class Standing:
    """The standbys of a world.

    Those that were `promoted` run a syncer from then on, and the last of them is the run's. With
    `wished` an operator wants each that reaches the supervisor to take over.
    """

    standbys: Callable[..., Follower] = Standbys
    standby: type[StandbyActor] = StandbyActor

    def __init__(self, wanted: Wanted | None) -> None:
        count = 0 if wanted is None else wanted.count
        self.names = tuple(f"standby-{number}" for number in range(count))
        self.promoted: list[str] = []
        self.wished = False
        self._after_s = None if wanted is None else wanted.after_s

    @property
    def owner(self) -> str:
        return self.promoted[-1] if self.promoted else SYNCER

    def waits_at(self, name: str) -> bool:
        return name in self.names and name not in self.promoted

    def actor(
        self,
        name: str,
        context: Context,
        *,
        disk: Disk,
        worker: Worker,
        credentials: Credentials,
        rng: random.Random,
    ) -> StandbyActor:
        def asked() -> bool:  # else it would be a hub, beside the one that it cannot reach
            return self.wished and standby.state.membership.supervisor_up

        standby = self.standby(
            name,
            context,
            disk=disk,
            worker=worker,
            credentials=credentials,
            address=name,
            after_s=self._after_s,
            rng=rng,
            hooks=Hooks(asked=asked),
        )
        return standby

    def follower(self, name: str) -> Follower | None:
        """Return what has a new start of a syncer copied; None if the run has no standbys.

        Learners hear of nothing that no standby has, but from the one that goes on last.
        """
        last = len(self.names) == 1 or name not in self.promoted[:1]
        waits = name == SYNCER or not last
        return type(self).standbys(waits=waits) if self.names else None
