"""What a scaler tells, exports and has carried out, on the virtual clock."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from islands.protocol.errors import UnreachableError, UserError
from islands.protocol.messages.control import CommandAnswer, Verb
from islands.scaling.fleet import Fleet
from islands.scaling.looking import Scaler
from islands.scaling.steadying import ADD_LOOKS, DRAIN_LOOKS
from islands.scaling.targets import Entry, PerHour
from tests.virtual import virtual


def fleet(present: Mapping[str, int]) -> Fleet:
    """Entries of which an island costs 10 an hour."""
    entries = tuple(Entry(name, "x", number, 1.0, 10.0) for name, number in present.items())
    names = {name: tuple(f"{name}-{i}" for i in range(n)) for name, n in present.items()}
    return Fleet(entries, names)


class Supervisor:
    """Answers commands, and counts islands as they are told."""

    def __init__(self, islands: int, *, answers: bool = True, done: bool = True) -> None:
        self.islands = islands
        self.told: list[tuple[Verb, str, int]] = []
        self.answers, self.done = answers, done

    async def tell(self, verb: Verb, name: str, count: int) -> CommandAnswer:
        self.told.append((verb, name, count))
        if not self.answers:
            raise UnreachableError("no supervisor could be told")
        if self.done:
            self.islands += count if verb is Verb.ADD else -count
        return CommandAnswer(done=self.done, told="as you wish" if self.done else "no")


@virtual
async def test_a_fleet_follows_its_target_until_the_run_has_ended() -> None:
    """What is wanted is told when it changes, and each answer."""
    there, said, looks = Supervisor(1), list[str](), 0

    def look() -> Fleet | None:
        nonlocal looks
        looks += 1
        return None if looks > 3 * DRAIN_LOOKS else fleet({"a": there.islands})

    def target(_: Fleet) -> PerHour:
        return PerHour(30.0 if looks <= DRAIN_LOOKS else 20.0)

    await Scaler(look, target, there.tell, said.append).follow()
    assert there.told == [(Verb.ADD, "a", 2), (Verb.DRAIN, "a-2", 1)]
    assert said == [
        "a  x: 1 now, 3 wanted: 3 at 10.00 an hour each, of the 30.00 that are left",
        "as you wish",
        "a  x: 3 now, 2 wanted: 2 at 10.00 an hour each, of the 20.00 that are left",
        "as you wish",
        "the run has ended",
    ]


@virtual
async def test_an_island_that_leaves_is_not_drained_twice() -> None:
    """It is there for a while after it was told, and counts no more."""
    told = list[tuple[Verb, str, int]]()

    async def tell(verb: Verb, name: str, count: int) -> CommandAnswer:
        told.append((verb, name, count))
        return CommandAnswer(done=True, told="it leaves")

    scaler = Scaler(lambda: fleet({"a": 3}), lambda _: PerHour(10.0), tell, lambda _: None)
    for _ in range(4 * DRAIN_LOOKS):
        assert await scaler.step()
    assert told == [(Verb.DRAIN, "a-2", 1), (Verb.DRAIN, "a-1", 1)]


@virtual
async def test_a_command_that_is_refused_or_lost_is_given_again() -> None:
    """And what stands in its way is told."""
    for there in (Supervisor(0, answers=False), Supervisor(0, done=False)):
        said = list[str]()
        look = fleet({"a": 0})
        scaler = Scaler(lambda look=look: look, lambda _: PerHour(10.0), there.tell, said.append)  # type: ignore[misc]  # mypy takes the default for an argument
        for _ in range(ADD_LOOKS + 1):
            await scaler.step()
        assert there.told == [(Verb.ADD, "a", 1)] * 2
        assert said[-1] in ("a stays as it is: no supervisor could be told", "no")


@virtual
async def test_without_apply_it_is_told_once_and_exported(tmp_path: Path) -> None:
    """As Prometheus' node exporter reads it."""
    said, file = list[str](), tmp_path / "islands.prom"
    scaler = Scaler(lambda: fleet({"a": 2, "b": 0}), lambda _: PerHour(9.0), None, said.append)
    await scaler.follow()
    assert said[-1].startswith("the money pays for no island: one costs 10.00")
    scaler.textfile = file
    await scaler.step()
    assert file.read_text().splitlines()[1:4] == [
        "# TYPE islands_wanted_islands gauge",
        'islands_wanted_islands{entry="a",region="x"} 1',
        'islands_wanted_islands{entry="b",region="x"} 0',
    ]
    scaler.textfile = tmp_path / "none" / "islands.prom"
    with pytest.raises(UserError, match=r"islands.prom cannot be written"):
        await scaler.step()
