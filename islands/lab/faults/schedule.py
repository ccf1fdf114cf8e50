"""Which fault strikes whom, and when: pure, from a scenario and its seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from islands.lab.settings.chaos import (
    ANYBODY,
    EVERYBODY,
    LEARNER,
    REMOTE,
    ChaosOptions,
    FaultKind,
    Peer,
    PlannedFault,
    faults_of,
)
from islands.protocol.errors import SettingsError
from islands.protocol.identities import SUPERVISOR, SYNCER


@dataclass(frozen=True, slots=True)
class Strike:
    """One occurrence of a fault; times are seconds after the control.

    Args:
        name: of the fault, with the number of the occurrence where there are several.
        fault: what happens.
        victims: names of the processes that it happens to.
        at_s: when it begins.
        ends_s: when it ends; for a process that ended, when it may come back.
        until_s: by when all must have recovered; what is measured belongs to the time until then.
    """

    name: str
    fault: PlannedFault
    victims: tuple[str, ...]
    at_s: float
    ends_s: float
    until_s: float

    @property
    def kind(self) -> FaultKind:
        """What happens."""
        return self.fault.fault

    def overlaps(self, other: "Strike") -> bool:
        """Whether what is measured of one may come from the other."""
        return self.at_s < other.until_s and other.at_s < self.until_s

    def undoes(self, other: "Strike") -> bool:
        """Whether it happens to the same thing as another that still lasts, or the other way.

        The end of the first would end the second as well, or it would find nobody.
        """
        if not {*self.victims} & {*other.victims} or self.place != other.place:
            return False
        links = (self.fault.link, other.fault.link)
        if self.kind.of_links and Peer.BOTH not in links and links[0] != links[1]:
            return False
        same = self.at_s == other.at_s
        return same or (self.at_s < other.ends_s and other.at_s < self.ends_s)

    @property
    def place(self) -> tuple[bool, bool]:
        """Whether it happens to links, or to a host; else to a process."""
        return self.kind.of_links, self.kind.of_hosts


@dataclass(frozen=True, slots=True)
class Struck:
    """A strike as it took place; times are those of the loop, in seconds.

    Args:
        strike: what was planned.
        began_s: when it began.
        ended_s: when it ended.
        until_s: until when what is measured belongs to it.
        missed: why it could not be carried out; empty if it was.
        broken: a promise that was seen broken while it lasted; empty if none was.
        count: how often it struck; None where that is not counted.
    """

    strike: Strike
    began_s: float
    ended_s: float
    until_s: float
    missed: str = ""
    broken: str = ""
    count: int | None = None


def strikes_of(options: ChaosOptions) -> list[Strike]:
    """Return all occurrences of a scenario's faults, in order of time.

    Faults that name no time come one after another, each when the one before must be over. One that
    is drawn, by its time or its victim, is left out where it would undo another.

    Raises:
        SettingsError: two that are not drawn happen to the same process or link at once.
    """
    strikes: list[Strike] = []
    free_s = 0.0
    for name, fault in faults_of(options).items():
        chance = random.Random(f"{options.seed} {name}")
        times_s = list(_times_s(fault, options, chance))
        count = len(times_s) or fault.times
        for index in range(count):
            at_s = times_s[index] if times_s else free_s
            label = f"{name} {index + 1}" if count > 1 else name
            strike = _strike(label, fault, _victims(fault, options, chance), at_s, options.rest_s)
            strikes.append(strike)
            if not times_s:
                free_s = strike.until_s
    return _apart(sorted(strikes, key=lambda strike: strike.at_s))


def _apart(strikes: list[Strike]) -> list[Strike]:
    """Return those that undo no other; what is drawn gives way to what is not."""
    kept = [strike for strike in strikes if not _is_drawn(strike)]
    for index, strike in enumerate(kept):
        for other in kept[:index]:
            if strike.undoes(other):
                raise SettingsError(
                    f"faults.{strike.name} begins while faults.{other.name} lasts, and both happen "
                    f"to {', '.join(sorted({*strike.victims} & {*other.victims}))}; set them apart"
                )
    for strike in strikes:
        if _is_drawn(strike) and not any(strike.undoes(other) for other in kept):
            kept.append(strike)
    return sorted(kept, key=lambda strike: strike.at_s)


def _is_drawn(strike: Strike) -> bool:
    fault = strike.fault
    return fault.every_s is not None or fault.who in (LEARNER, ANYBODY)


def end_s(strikes: list[Strike]) -> float:
    """Return the time, in seconds after the control, at which all has recovered."""
    return max((strike.until_s for strike in strikes), default=0.0)


def _times_s(fault: PlannedFault, options: ChaosOptions, chance: random.Random) -> Iterator[float]:
    """Yield the times of a fault that has some of its own."""
    yield from fault.at_s
    if fault.every_s is None:
        return
    at_s = chance.expovariate(1 / fault.every_s)
    left = fault.times if fault.times > 1 else None
    while at_s < options.duration_s and left != 0:
        yield at_s
        at_s += chance.expovariate(1 / fault.every_s)
        left = None if left is None else left - 1


def _victims(fault: PlannedFault, options: ChaosOptions, chance: random.Random) -> tuple[str, ...]:
    if fault.who == LEARNER:
        return (chance.choice(options.names),)
    if fault.who == ANYBODY:
        return (chance.choice((SYNCER, *options.names)),)
    if fault.who == REMOTE:
        return options.remote_names
    if fault.who == EVERYBODY and fault.fault.of_links:
        return options.names
    if fault.who == EVERYBODY:
        return (SUPERVISOR, SYNCER, *options.names)
    return (fault.who,)


def _strike(
    name: str, fault: PlannedFault, victims: tuple[str, ...], at_s: float, rest_s: float
) -> Strike:
    away = fault.fault in (FaultKind.TERMINATE, FaultKind.HANG) or SUPERVISOR in victims
    at_once = fault.fault.ends_process and not away
    ends_s = at_s if at_once else at_s + fault.for_s
    return Strike(name, fault, victims, at_s, ends_s, ends_s + rest_s)
