"""Puts together what follows a run's journal: its checkpoints, its standbys, and a mirror."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from islands.keeping.mirror import Mirror
from islands.keeping.saving import checkpointer
from islands.keeping.standbys import Standbys, addresses_in, keep_addresses
from islands.protocol.errors import DiskError
from islands.protocol.messages.standby import Follow, PieceHeld
from islands.protocol.tape.entry import Entry
from islands.settings.groups import CheckpointOptions, Durability
from islands.settings.run_spec import RunPlan, RunSpec
from islands.syncer.journal import Follower, Journal, Peers


class Copies(Follower):
    """Several followers of one journal."""

    def __init__(self, followers: Sequence[Follower]) -> None:
        self._followers = followers

    def attach(self, peers: Peers) -> None:
        for each in self._followers:
            each.attach(peers)

    def receive(self, connection: int, message: Follow | PieceHeld) -> None:
        for each in self._followers:
            each.receive(connection, message)

    def lost(self, connection: int) -> None:
        for each in self._followers:
            each.lost(connection)

    def followed(self) -> None:
        for each in self._followers:
            each.followed()

    def holds(self, sequence: int) -> bool:
        return all(each.holds(sequence) for each in self._followers)

    def follow(self, journal: Journal) -> None:
        """Let each look; the error of one keeps no other from it."""
        failed: DiskError | None = None
        for each in self._followers:
            try:
                each.follow(journal)
            except DiskError as error:
                failed = error
        if failed is not None:
            raise failed

    def ask(self, reason: str) -> None:
        for each in self._followers:
            each.ask(reason)

    @property
    def wanted(self) -> bool:
        return any(each.wanted for each in self._followers)

    def finish(self, journal: Journal, reason: str) -> None:
        for each in self._followers:
            each.finish(journal, reason)

    def news(self) -> Iterator[Entry]:
        for each in self._followers:
            yield from each.news()

    def close(self) -> None:
        for each in self._followers:
            each.close()


def copies_of(folder: Path, options: CheckpointOptions, spec: RunSpec, plan: RunPlan) -> Copies:
    """Return what keeps copies of the run in a folder."""
    waits = options.durability is Durability.MIRRORED
    followers: list[Follower] = [
        Standbys(
            waits=waits and options.mirror is None,
            known=addresses_in(folder),
            keep=partial(keep_addresses, folder),
        ),
        checkpointer(folder, options, spec, plan),
    ]
    if options.mirror is not None:
        followers.insert(0, Mirror(folder, options.mirror, spec, plan, waits))
    return Copies(followers)
