"""Looks at a run: what is wanted is told, exported, and carried out by an operator's commands."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from islands.files.whole_files import replace_file
from islands.protocol.errors import IslandsError, unusable
from islands.protocol.messages.control import CommandAnswer, Verb
from islands.scaling.fleet import Fleet
from islands.scaling.steadying import Steadying
from islands.scaling.targets import Target, Wanted, wanted_islands
from messaging.errors import LinkLost, LocalFault

Tell = Callable[[Verb, str, int], Awaitable[CommandAnswer]]
"""Sends an operator's command to the run's supervisor: verb, learner or kind, and how many."""

METRIC = "islands_wanted_islands"
PRESENT = "islands_placed_islands"


@dataclass(slots=True)
class Scaler:
    """One command that lets a fleet follow its target.

    Args:
        look: returns the fleet now; None once the run has ended.
        target: returns what is asked for, given the fleet.
        tell: sends a command; None: what is wanted is told alone.
        say: tells the person who started the command.
        least: how many islands there must be at the least.
        interval_s: time between two looks.
        textfile: a file for the node exporter of Prometheus; None: there is none.
    """

    look: Callable[[], Fleet | None]
    target: Callable[[Fleet], Target]
    tell: Tell | None
    say: Callable[[str], object]
    least: int = 1
    interval_s: float = 60.0
    textfile: Path | None = None
    steadying: Steadying = field(init=False)
    _leaving: dict[str, None] = field(default_factory=dict)
    _said: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Begin without a memory of what was wanted."""
        self.steadying = Steadying(self.interval_s)

    async def follow(self) -> None:
        """Look again and again until the run has ended; once if nothing is carried out."""
        goes_on = await self.step()
        while goes_on and (self.tell is not None or self.textfile is not None):
            await asyncio.sleep(self.interval_s)
            goes_on = await self.step()

    async def step(self) -> bool:
        """Look once, and carry out what is due; return whether the run goes on.

        Raises:
            UserError: the target or the run cannot be, or the text file cannot be written.
        """
        fleet = self.look()
        if fleet is None:
            self.say("the run has ended")
            return False
        here = {name for names in fleet.islands.values() for name in names}
        self._leaving = {name: None for name in self._leaving if name in here}
        fleet = fleet.without(self._leaving)
        wanted = wanted_islands(fleet.entries, self.target(fleet), self.least)
        self._show(fleet, wanted)
        if self.textfile is not None:
            _export(self.textfile, fleet, wanted)
        if self.tell is not None:
            present = {each.name: each.present for each in fleet.entries}
            for entry, change in self.steadying.look(wanted.islands, present).items():
                await self._change(self.tell, fleet, entry, change)
        return True

    def _show(self, fleet: Fleet, wanted: Wanted) -> None:
        """Tell what is wanted if it is not what was told last."""
        told = tuple(lines_of(fleet, wanted))
        numbers = tuple(f"{name} {number}" for name, number in wanted.islands.items())
        numbers = (*numbers, "unmet" if wanted.unmet else "")
        if numbers != self._said:
            self._said = numbers
            for line in told:
                self.say(line)

    async def _change(self, tell: Tell, fleet: Fleet, entry: str, change: int) -> None:
        try:
            if change > 0:
                answer = await tell(Verb.ADD, entry, change)
                self.say(answer.told)
                if not answer.done:
                    self.steadying.forget(entry)
                return
            for name in fleet.newest(entry, -change):
                answer = await tell(Verb.DRAIN, name, 1)
                self.say(answer.told)
                self._leaving[name] = None
        except (IslandsError, LinkLost, LocalFault) as error:
            self.steadying.forget(entry)
            self.say(f"{entry} stays as it is: {error}")


def lines_of(fleet: Fleet, wanted: Wanted) -> list[str]:
    """Return a line for each entry: where, how many there are, how many are wanted, and why."""
    width = max((len(each.name) for each in fleet.entries), default=0)
    lines = [
        f"{each.name.ljust(width)}  {each.region or 'somewhere'}: {each.present} now, "
        f"{wanted.islands.get(each.name, 0)} wanted: {wanted.why.get(each.name, '')}"
        for each in fleet.entries
    ]
    return [*lines, *([wanted.unmet] if wanted.unmet else [])]


def _export(path: Path, fleet: Fleet, wanted: Wanted) -> None:
    """Write the numbers as Prometheus' node exporter reads them of its text files.

    Raises:
        UserError: the file cannot be written.
    """
    lines = [f"# HELP {METRIC} Islands that a target asks for.", f"# TYPE {METRIC} gauge"]
    lines += [
        f'{METRIC}{{entry="{each.name}",region="{each.region}"}} {wanted.islands[each.name]}'
        for each in fleet.entries
    ]
    lines += [f"# HELP {PRESENT} Islands that are there or placed.", f"# TYPE {PRESENT} gauge"]
    lines += [
        f'{PRESENT}{{entry="{each.name}",region="{each.region}"}} {each.present}'
        for each in fleet.entries
    ]
    try:
        replace_file(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise unusable(f"{path} cannot be written", error) from error
