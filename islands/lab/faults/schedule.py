"""The schedule of a scenario: which fault hits whom and when, from its file and its seed."""

import random
from collections.abc import Iterator

from islands.lab.faults.fault import ANYBODY, EVERYBODY, LEARNER, Fault, Injection
from islands.lab.settings.chaos import ChaosOptions, faults_of
from islands.protocol.errors import SettingsError
from islands.protocol.identities import SUPERVISOR, SYNCER


def injections_of(options: ChaosOptions) -> list[Injection]:
    """Return all occurrences of a scenario's faults, in order of time.

    Faults that name no time come one after another, each when the one before must be over. One that
    is drawn, by its time or its victim, is left out where it would undo another.
    """
    injections: list[Injection] = []
    free_s = 0.0
    for name, fault in faults_of(options).items():
        chance = random.Random(f"{options.seed} {name}")
        times_s = list(_times_s(fault, options, chance))
        count = len(times_s) or fault.times
        for index in range(count):
            label = f"{name} {index + 1}" if count > 1 else name
            victims = _victims(fault, options, chance)
            at_s = times_s[index] if times_s else free_s
            injections.append(Injection(fault, victims, at_s, label, options.rest_s))
            if not times_s:
                free_s = injections[-1].until_s
    return _apart(sorted(injections, key=lambda injection: injection.at_s))


def _apart(injections: list[Injection]) -> list[Injection]:
    """Return those that undo no other; what is drawn gives way to what is not."""
    kept = [injection for injection in injections if not _is_drawn(injection.fault)]
    for index, one in enumerate(kept):
        for other in kept[:index]:
            if one.undoes(other):
                raise SettingsError(
                    f"faults.{one.name} begins while faults.{other.name} lasts, and both happen "
                    f"to {', '.join(sorted({*one.victims} & {*other.victims}))}; set them apart"
                )
    for injection in injections:
        if _is_drawn(injection.fault) and not any(injection.undoes(other) for other in kept):
            kept.append(injection)
    return sorted(kept, key=lambda injection: injection.at_s)


def _is_drawn(fault: Fault) -> bool:
    return fault.every_s is not None or fault.who in (LEARNER, ANYBODY)


def _times_s(fault: Fault, options: ChaosOptions, chance: random.Random) -> Iterator[float]:
    yield from fault.at_s
    if fault.every_s is None:
        return
    at_s = chance.expovariate(1 / fault.every_s)
    left = fault.times if fault.times > 1 else None
    while at_s < options.duration_s and left != 0:
        yield at_s
        at_s += chance.expovariate(1 / fault.every_s)
        left = None if left is None else left - 1


def _victims(fault: Fault, options: ChaosOptions, chance: random.Random) -> tuple[str, ...]:
    if fault.who == LEARNER:
        return (chance.choice(options.names),)
    if fault.who == ANYBODY:
        return (chance.choice((SYNCER, *options.names)),)
    if fault.who == EVERYBODY and fault.kind.of_links:
        return options.names
    if fault.who == EVERYBODY:
        return (SUPERVISOR, SYNCER, *options.names)
    return (fault.who,)
