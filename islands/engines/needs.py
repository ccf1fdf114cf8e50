"""The needs of an island: one entry of the table `islands` in the file of a run.

islands:
  site:
    engine: slurm
    count: 2
    hosts: 4
    accelerators: H100:8
    setup: [source /shared/venv/bin/activate]
    settings: {partition: gpu}
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated

from msgspec import ValidationError, convert

from islands.protocol.errors import SettingsError
from islands.protocol.identities import Role
from islands.protocol.settings.setting import Setting, check_ranges
from islands.protocol.supervisor.state import LEARNERS
from islands.settings.groups import ISLANDS_MOST, check_name

ENGINES: Mapping[str, str] = {
    "slurm": "islands.engines.slurm:Slurm",
    "ray": "islands.engines.ray:Ray",
    "kubernetes": "islands.engines.kubernetes:Kubernetes",
    "skypilot": "islands.engines.skypilot:SkyPilot",
}
"""The class of each engine, as module:class; it is made from a `RunMark` and its settings."""

ACCELERATORS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(:[1-9][0-9]*)?")

SOUNDS_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|KEY", re.IGNORECASE)
"""What the name of a variable holds whose value is shown to nobody."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What each island of one entry needs.

    Args:
        engine: who places it: slurm, ray, kubernetes, skypilot, or module:class of one's own.
        count: number of islands of this entry at the beginning; `islands add` adds more.
        hosts: number of hosts in each island, which the engine gangs.
        accelerators: kind and number of accelerators of each host, such as H100:8; by default none.
        cpus: cores of each host; by default as many as the engine gives.
        memory_gib: memory of each host; by default as much as the engine gives.
        region: where it is to run, in the engine's words.
        preemptible: whether its hosts may be taken away (spot), which costs less.
        command: command of a training loop of one's own, as a line of shell whose last command
            gets the signals; by default a learner of the run's task. It finds ISLANDS_SUPERVISOR,
            ISLANDS_NAME and ISLANDS_TOKEN.
        learner: options of the learner, as `python -m islands.learner` has them.
        image: image of a container in which it runs, where the engine has containers.
        setup: lines of shell that run on each host before the command.
        env: further variables of its command; one whose name says that it holds a secret, as
            API_KEY does, is shown to nobody.
        secrets: names of variables of the hub's own environment that its command is given beside
            them, and that are shown to nobody.
        settings: where the engine is and what else it is told, in its own words.
    """

    engine: str
    count: Annotated[int, Setting(least=0, most=ISLANDS_MOST)] = 1
    hosts: Annotated[int, Setting(least=1)] = 1
    accelerators: str | None = None
    cpus: Annotated[float | None, Setting(above=0)] = None
    memory_gib: Annotated[float | None, Setting(above=0)] = None
    region: str | None = None
    preemptible: bool = False
    command: str | None = None
    learner: dict[str, object] = field(default_factory=dict)
    image: str | None = None
    setup: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that cannot work, by name, value and what is allowed."""
        check_ranges(self)
        if self.accelerators is not None and ACCELERATORS.fullmatch(self.accelerators) is None:
            raise SettingsError(
                f"accelerators is {self.accelerators!r}; it must be a kind and a number, as H100:8"
            )
        if self.command is not None and self.learner:
            raise SettingsError("command is set and so is learner; a loop of one's own has neither")
        for mine in ("supervisor", "name", "hosts", "rank", "island_address"):
            if mine in self.learner:
                raise SettingsError(f"learner.{mine} is set; the hub tells it to each island")

    def variables(self, hubs: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of its command, of which some are taken from the hub's own."""
        missing = [name for name in self.secrets if name not in hubs]
        if missing:
            raise SettingsError(
                f"secrets names {missing[0]}, which is no variable of this process: export it "
                "before the hub starts, or leave it out"
            )
        return {**self.env, **{name: hubs[name] for name in self.secrets}}

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the variables that are shown to nobody."""
        sounding = [name for name in self.env if SOUNDS_SECRET.search(name)]
        return (*self.secrets, *sounding)

    @property
    def accelerator(self) -> tuple[str, int] | None:
        """Kind and number of the accelerators of each host; None without."""
        if self.accelerators is None:
            return None
        kind, _, number = self.accelerators.partition(":")
        return kind, int(number or 1)


def entry_of(name: str) -> str:
    """Return the entry of an island, as site of site-0; one without a number is its own."""
    entry, _, number = name.rpartition("-")
    return entry if entry and number.isdecimal() else name


def read_islands(told: Mapping[str, object]) -> dict[str, Needs]:
    """Return the entries of a table `islands`, by name."""
    folded: dict[str, str] = {}
    for name in told:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise SettingsError(f"islands has {other} and {name}, which differ in case alone")
        if name.lower() == LEARNERS:
            raise SettingsError(f"islands.{name}: this is the name of the hub's own learners")
    return {name: _entry(name, entry) for name, entry in told.items()}


def _entry(name: str, told: object) -> Needs:
    place = f"islands.{name}"
    try:
        check_name(f"{name}-0", Role.LEARNER)
        return convert(_checked(told), Needs, strict=False)
    except ValidationError as error:
        raise SettingsError(f"{place}: {error}") from error
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from error


def _checked(told: object) -> dict[str, object]:
    """Return an entry whose keys are known, with each of its values in the form that is kept."""
    if not isinstance(told, Mapping):
        raise SettingsError(f"it is {told!r}; it must be a table with an engine")
    known = [each.name for each in fields(Needs)]
    strange = [key for key in told if key not in known]
    if strange:
        raise SettingsError(f"{strange[0]} is not known; it may have {', '.join(known)}")
    if "engine" not in told:
        raise SettingsError(f"engine is missing; it may be {', '.join(ENGINES)}, or module:class")
    lines = told.get("setup", ())
    setup = lines.splitlines() if isinstance(lines, str) else lines
    words = {key: _words(key, told[key]) for key in ("env", "settings") if key in told}
    if not isinstance(told.get("secrets", []), (list, tuple)):
        raise SettingsError(
            f"secrets is a {type(told['secrets']).__name__}; it must be a list of names of the "
            "hub's own variables, whose values stand in no file"
        )
    return {**told, **words, "setup": setup}


def _words(key: str, told: object) -> dict[str, str]:
    """Return a table of words; numbers and truth values become words, as YAML tells them apart."""
    if not isinstance(told, Mapping):
        raise SettingsError(f"{key} is {told!r}; it must be a table of words")
    found: dict[str, str] = {}
    for name, value in told.items():
        if isinstance(value, (Mapping, list)) or value is None:
            raise SettingsError(f"{key}.{name} is {value!r}; it must be one word")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
