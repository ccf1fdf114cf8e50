"""Where a learner runs and on what: its engine's record tells it, or the file of prices does."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from msgspec import ValidationError, convert

from islands.engines.needs import Needs
from islands.protocol.errors import SettingsError

HOSTS_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where an island runs, and on what.

    The region is as the file of prices names it; empty: nobody told. Accelerators are kind and
    number of each host's, as H100:8.
    """

    region: str = ""
    accelerators: str | None = None
    preemptible: bool = False
    hosts: int = 1

    def __post_init__(self) -> None:
        """Refuse values that cannot work, by name, value and what is allowed."""
        if not 1 <= self.hosts <= HOSTS_MOST:
            raise SettingsError(f"hosts is {self.hosts}; it must be in [1, {HOSTS_MOST}]")
        Needs("", accelerators=self.accelerators)  # which checks their form

    @staticmethod
    def of(needs: Needs) -> "Place":
        return Place(needs.region or "", needs.accelerators, needs.preemptible, needs.hosts)

    @staticmethod
    def read(told: object, name: str) -> "Place":
        """Return a place that a file tells."""
        known = [each.name for each in fields(Place)]
        if not isinstance(told, Mapping):
            raise SettingsError(f"{name} is {told!r}; it must be a table of {', '.join(known)}")
        strange = [key for key in told if key not in known]
        if strange:
            raise SettingsError(f"{name}.{strange[0]} is not known; there are {', '.join(known)}")
        try:
            place: Place = convert(told, Place)
        except (ValidationError, SettingsError) as error:
            raise SettingsError(f"{name}: {error}") from error
        return place

    @property
    def accelerator(self) -> tuple[str, int] | None:
        """Kind and number of the accelerators of each host; None without."""
        return Needs("", accelerators=self.accelerators).accelerator

    @property
    def told(self) -> str:
        """The place in a few letters, as 2×H100:8 spot."""
        what = self.accelerators or "host"
        many = f"{self.hosts}×{what}" if self.hosts > 1 else what
        return f"{many} spot" if self.preemptible else many


def matching(name: str, patterns: Mapping[str, Any]) -> Place | None:
    """Return the place of the first pattern that a name matches; None if it matches none."""
    found = (place for pattern, place in patterns.items() if fnmatchcase(name, pattern))
    return next(found, None)
