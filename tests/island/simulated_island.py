"""Islands of several hosts in a simulated world: the production actors and sessions, virtual time.

An island steps as one learner does, since what its hosts agree on is no matter here. Its values are
cut into shares, of which each host has its own; hosts have links of their own to the syncer, and
their messages to one another take a millisecond.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from islands.actors.ports import InlineWorker
from islands.island.follower import FollowerShares
from islands.island.shares import HostSession, LeaderShares, assembled, cut
from islands.lab.world.world import LearnerHost, World
from islands.learner.actor import LearnerActor
from islands.learner.compute import Compute, ComputeEvent, Post
from islands.learner.inline_compute import InlineCompute
from islands.protocol.learner.actions import AdoptValue, EngineAction
from islands.protocol.learner.events import SnapshotTaken, TrainerMade, ValueAdopted
from islands.protocol.messages.multihost import ShareWanted, SyncerTold
from islands.protocol.ranges import Ranges, held_by
from islands.run.learner_process import make_learner

AMONG_S = 0.001
"""What a message between two hosts of an island takes."""


class IslandWorld(World):
    """A world in which learners may have several hosts.

    Attributes:
        owners: For each learner, the hosts of its devices, in the order in which values are cut;
            a learner that is not named is on one host.
        islands: The newest process of each island.
    """

    owners: dict[str, Sequence[int]]
    islands: dict[str, "SimulatedIsland"]

    def _make_learner(self, name: str, rng: random.Random) -> LearnerActor:
        owners = self.owners.get(name, (0,))
        if len(set(owners)) == 1:
            return super()._make_learner(name, rng)
        host = self.hosts.setdefault(name, LearnerHost())
        self.trainers[name] = self._make_trainer(name, host)
        compute = InlineCompute(
            self.trainers[name],
            self.settings,
            step_s=lambda: self.slow.get(name, 1.0) * host.draw_step_s(rng),
            setup_s=host.setup_s,
            copy_s=lambda: host.draw_copy_s(rng),
        )
        island = self.islands[name] = SimulatedIsland(self, name, compute, owners)
        worker = InlineWorker(self._work_s(rng))
        learner = make_learner(
            *(name, self._context, island), worker=worker, rng=rng, sharing=island.leader
        )
        island.begin(learner)
        return learner

    def work_s(self) -> Callable[[], float]:
        """What a piece of work of an island's host takes."""
        return lambda: self.costs.work_s[0]


class SimulatedIsland:
    """The hosts of one island, as the compute of its learner.

    Attributes:
        leader: Rank 0's side of the shares.
        followers: The other hosts' sides, by rank.
    """

    def __init__(
        self, world: IslandWorld, name: str, compute: Compute, owners: Sequence[int]
    ) -> None:
        self.followers: dict[int, FollowerShares] = {}
        self._world, self._name, self._compute, self._owners = world, name, compute, owners
        self._hosts = max(owners) + 1
        self._number = 0
        self._post: Post = lambda _: None
        self.leader = LeaderShares(
            self._hosts,
            tell=self._tell,
            shared=lambda: self,
            worker=InlineWorker(world.work_s()),
            say=lambda _: None,
        )

    def begin(self, learner: LearnerActor) -> None:
        """Give each host a side, which ends with the learner."""
        for rank in range(1, self._hosts):
            self.followers[rank] = FollowerShares(
                rank,
                network=self._world.network,
                dialling=learner.context.dialling,
                scope=learner.scope,
                worker=InlineWorker(self._world.work_s()),
                changed=lambda rank=rank: self._changed(rank),  # type: ignore[misc]
                lacks=lambda wanted, rank=rank: _later(  # type: ignore[misc]
                    self.leader.on_share_lacking, rank, wanted.ticket, wanted.fragment
                ),
                holds=lambda fragment, version, rank=rank: _later(  # type: ignore[misc]
                    self.leader.on_share_held, rank, fragment, version
                ),
            )

    def shares(self, fragment: int) -> list[Ranges]:
        """Each host's share."""
        size = self.size(fragment)
        return [held_by(rank, self._owners, size) for rank in range(self._hosts)]

    def size(self, fragment: int) -> int:
        """The number of elements of a fragment."""
        return self.sizes()[fragment]

    def sizes(self) -> list[int]:
        """Those of all fragments."""
        return [fragment.size for fragment in self._world.layout.fragments]

    # --- the compute --------------------------------------------------------------------------

    @property
    def compiling(self) -> bool:
        return self._compute.compiling

    def start(self, post: Post) -> None:
        self._post = post
        self._compute.start(self._told)

    def command(self, command: EngineAction) -> None:
        """Put the hosts' shares of a value together, as the one compute adopts all of it."""
        if isinstance(command, AdoptValue):
            mine = [side.adopts(command).payload for side in self.followers.values()]
            if command.in_shares:
                ranges, size = self.shares(command.fragment), self.size(command.fragment)
                whole = assembled([command.payload, *mine], ranges, size)
                command = replace(command, payload=whole, in_shares=False)
        self._compute.command(command)

    def stop(self) -> None:
        self._compute.stop()

    def _told(self, event: ComputeEvent) -> None:
        """Number a snapshot, of which each host keeps its share."""
        if isinstance(event, TrainerMade):
            self.leader.made()
        if isinstance(event, SnapshotTaken):
            self._number += 1
            event = replace(event, number=self._number)
            for rank, side in self.followers.items():
                ranges, size = self.shares(event.fragment)[rank], self.size(event.fragment)
                side.keep(event.fragment, self._number, cut(event.payload, ranges, size))
        if isinstance(event, ValueAdopted):
            for side in self.followers.values():
                side.on_adopted(event.fragment)
        self._post(event)

    # --- the network among the hosts ----------------------------------------------------------

    def _tell(self, rank: int, body: object) -> None:
        side = self.followers[rank]
        if isinstance(body, SyncerTold):
            _later(side.on_syncer, body)
        elif isinstance(body, ShareWanted):
            _later(side.on_share_wanted, body)

    def _changed(self, rank: int) -> None:
        side = self.followers[rank]
        state = HostSession(side.session, side.bytes_sent, side.bytes_received)
        _later(self.leader.on_state, rank, state)


def _later(act: Callable[..., object], *arguments: object) -> None:
    asyncio.get_running_loop().call_later(AMONG_S, act, *arguments)


def host_name(name: str, rank: int) -> str:
    """The name of an island's host in the simulated network."""
    return name if rank == 0 else f"{name}-rank-{rank}"
