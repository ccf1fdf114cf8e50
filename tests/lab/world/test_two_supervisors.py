"""Two supervisors of one run, on hosts of their own, over one folder that knows no locks.

Members dial the one that answers. The second has the higher epoch, which those follow who have
heard of it; whichever they reach, no incarnation is given twice, and the run comes to its end.
"""

import asyncio
import random
from dataclasses import replace

import pytest

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import judge
from islands.lab.world.processes import RoleProcess
from islands.lab.world.world import World
from islands.protocol.errors import RefusedError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.supervisor.actor import Hooks, SupervisorActor
from tests.lab.world.test_operator import HOSTS, SETTINGS
from tests.lab.world.worlds import Entries, entries, lines, until
from tests.virtual import virtual

pytestmark = pytest.mark.simulation
SPARE = "supervisor-b"


class Pair(World):
    """A world with a host for a second supervisor, which all members may dial as well."""

    def __init__(self, seed: int) -> None:
        super().__init__(SETTINGS, dict(HOSTS), seed=seed, tape=MemoryTape())
        self._context = replace(self._context, supervisor=(SUPERVISOR, SPARE))

    def start_second(self) -> None:
        chance = random.Random(f"{self.seed} {SPARE}")
        self.disks[SPARE] = self.disks[SUPERVISOR].mounted(chance)
        self.start(SPARE)

    def _make_actor(self, name: str, rng: random.Random) -> RoleProcess:
        if name != SPARE:
            return super()._make_actor(name, rng)
        return SupervisorActor(
            SPARE,
            self._context,
            disk=self.disks[SPARE],
            credentials=self._credentials,
            hooks=Hooks(finished=self.cluster.end.on_finished),
        )


async def part(world: Pair, supervisor: str, names: list[str], for_s: float) -> None:
    for name in names:
        world.network.cut(supervisor, name)
    await asyncio.sleep(for_s)
    world.network.heal_all()


async def over(world: Pair) -> Entries:
    """The run comes to its end and keeps every promise; all entries of its tape."""
    await until(lambda: world.finished is not None)
    await until(lambda: not {*world.processes.names()} & {SYNCER, *HOSTS})
    for name, error in world.failures:  # the first, once it hears of the second
        assert (name, type(error)) == (SUPERVISOR, RefusedError), error
    assert not judge([line for line in lines(world) if not is_end(line)], world.limits())
    return entries(world)


def is_end(line: bytes) -> bool:
    """Whether an entry tells that the first supervisor has ended since there is a second."""
    return b'"process_ended"' in line and b"follows a supervisor of epoch 2" in line


@virtual
async def test_the_first_ends_when_members_of_the_second_come_to_it() -> None:
    """All had found the second; then that is cut off, and the first is told of its epoch.

    It gives none of them another incarnation, and all train on under the second.
    """
    world = Pair(1)
    world.start_all()
    await asyncio.sleep(2.0)
    world.start_second()
    members = [SYNCER, *HOSTS]
    await part(world, SUPERVISOR, members, 3.0)
    await part(world, SPARE, members, 0.5)  # for less than an eviction takes
    healed_s = asyncio.get_running_loop().time()
    tape = await over(world)
    assert [name for name, _ in world.failures] == [SUPERVISOR]
    given = [e for e in tape if (e["kind"], e["actor"]) == ("admitted", SUPERVISOR)]
    assert len(given) == len(members), "at the start, and never again"
    late = [entry for entry in tape if float(str(entry["at_s"])) > healed_s]
    merged = [str(entry["participants"]) for entry in late if entry["kind"] == "merged"]
    assert all(any(name in people for people in merged) for name in HOSTS)


@virtual
async def test_no_incarnation_is_given_twice(seed: int) -> None:
    rng = random.Random(seed)
    world = Pair(seed)
    world.start_all()
    await asyncio.sleep(rng.uniform(0.5, 4.0))
    world.start_second()
    members = [SYNCER, *HOSTS]
    names = rng.sample(members, rng.randint(1, len(members)))
    for supervisor in (SUPERVISOR, SPARE):
        await part(world, supervisor, names, rng.choice((0.5, 2.0, 4.0)))
    tape = await over(world)
    given = [entry["incarnation"] for entry in tape if entry["kind"] == "admitted"]
    assert len(given) == len({str(incarnation) for incarnation in given})
