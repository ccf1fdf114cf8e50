"""The port through which islands are placed: an engine places one, ends one, and lists them.

===========  =================================  ==========================================
engine       an island is                       file
===========  =================================  ==========================================
slurm        a batch job                        `slurm.py`
ray          a job of its Jobs API              `ray.py`
kubernetes   a JobSet                           `kubernetes.py`
skypilot     a managed job                      `skypilot.py`
===========  =================================  ==========================================

An engine gangs the hosts inside of one island, and never islands: that would bring back the barrier
that decoupling removes. It decides nothing. What it says of life is never taken for life: the
supervisor knows by heartbeats alone who is a member, and an incarnation that was placed twice is
fenced off. So an engine answers for its *jobs* alone: which ones there are, and how they ended.

All calls block, and are made on a thread of the engine's own, one at a time (`launcher.py`).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import Protocol

from islands.engines.needs import Needs
from islands.protocol.errors import DONE, IslandsError, SettingsError, UserError

PORT = 7200
"""The port at which rank 0 of an island of several hosts serves the others; JAX takes the next."""

RANK, ADDRESS = "ISLANDS_RANK", "ISLANDS_ADDRESS"
"""Variables that an engine sets on each host of an island of several: the host's number, and the
address (without a port) at which the others reach rank 0."""


class Unplaceable(UserError):  # noqa: N818  (it is told as a sentence)
    """An island cannot be placed until its user has mended something: placing is not repeated."""


class EngineAway(IslandsError):  # noqa: N818
    """An engine does not answer, or has no room: the call is made again later."""


class JobState(StrEnum):
    """The state of a job, as its engine tells it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Job:
    """A job of this run, as its engine tells it.

    Args:
        name: the island that it runs.
        job: the engine's own name of it.
        state: its state.
        where: its hosts, as the engine names them; empty while it waits.
        restarts: how often the engine itself has started it again.
        why: why it waits or how it ended, in the engine's words; empty if that is not known.
        code: exit code of its command once it has ended; None if the engine does not tell.
        cancelled: whether somebody ended it on purpose, by the engine's own means.
        began: False if it has ended since its engine let it wait no longer, so that it is placed
            again.
    """

    name: str
    job: str
    state: JobState
    where: str = ""
    restarts: int = 0
    why: str = ""
    code: int | None = None
    cancelled: bool = False
    began: bool = True


@dataclass(frozen=True, slots=True)
class RunMark:
    """Which run's jobs are meant: two runs of one name on one engine are told apart by `mark`.

    Args:
        run: the run's name.
        mark: eight hexadecimal digits that are those of this beginning of the run alone.
    """

    run: str
    mark: str

    @property
    def label(self) -> str:
        """The mark as a word, which jobs carry."""
        return f"islands:{self.run}:{self.mark}"


TOKEN = "ISLANDS_TOKEN"  # noqa: S105  the name of a variable


@dataclass(frozen=True, slots=True)
class Island:
    """An island that is to be placed.

    Args:
        name: its name in the run, such as site-0.
        of: the run that it belongs to.
        needs: what it needs of its engine.
        command: the command of each of its hosts, as a line of shell.
        environment: variables that its command needs; those named in `secrets` are shown to nobody.
        secrets: names of the variables that hold secrets.
        attempt: how often it has been placed, this time included; with the run and the island's
            name it names a job, where engines let its name be chosen.
    """

    name: str
    of: RunMark
    needs: Needs
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = (TOKEN,)
    attempt: int = 1

    @property
    def job_name(self) -> str:
        """A name for its job: lower-case letters, digits and hyphens, as all engines allow."""
        words = f"islands-{self.of.run}-{self.name}".lower()
        return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in words)

    def script(self, *, exports: bool = False) -> str:
        """Return what each of its hosts runs in a shell: set-up lines, then the command.

        Args:
            exports: whether it begins with its variables, secrets left out, for engines that cannot
                set variables by themselves.
        """
        shown = {k: v for k, v in self.environment.items() if k not in self.secrets}
        lines = [f"export {key}={shlex.quote(value)}" for key, value in shown.items()]
        line = self.command if self.needs.command is None else f"sh -c {shlex.quote(self.command)}"
        parts = [*(lines if exports else ()), *self.needs.setup, f"exec {line}"]
        return "\n".join(parts) + "\n"


class Engine(Protocol):
    """Places islands of one run. Every method may block for seconds.

    Each raises `EngineAway` if the engine does not answer or has no room now, and `Unplaceable` if
    its user must mend something; what the engine said is part of the sentence.

    Attributes:
        poll_s: Seconds between two calls of `list`, as often as its operators bear.
    """

    poll_s: float

    def place(self, island: Island) -> str:
        """Submit an island's job, and return the engine's own name of it; do not wait for it."""

    def end(self, job: str, *, at_once: bool) -> None:
        """End a job, by SIGTERM to its processes or `at_once`; do nothing if there is none."""

    def list(self) -> Sequence[Job]:
        """Return the run's jobs, of which one that has ended may be missing."""

    def describe(self, island: Island) -> str:
        """Return what `place` would give the engine, as text without secrets; ask nobody."""


ENGINES: Mapping[str, str] = MappingProxyType(
    {
        "slurm": "islands.engines.slurm:Slurm",
        "ray": "islands.engines.ray:Ray",
        "kubernetes": "islands.engines.kubernetes:Kubernetes",
        "skypilot": "islands.engines.skypilot:SkyPilot",
    }
)
"""The class of each engine, as module:class; it is made from a `RunMark` and its settings."""


def make_engine(name: str, of: RunMark, settings: Mapping[str, str]) -> Engine:
    """Return an engine, without asking it anything."""
    place = ENGINES.get(name, name)
    module, _, kind = place.partition(":")
    if not kind:
        known = ", ".join(ENGINES)
        raise SettingsError(f"engine is {name!r}; it must be one of {known}, or module:class")
    try:
        make = getattr(import_module(module), kind)
    except (ModuleNotFoundError, AttributeError) as error:
        raise SettingsError(f"engine is {name!r}; it cannot be found: {error}") from error
    engine: Engine = make(of, settings)
    return engine


def told_of(job: Job) -> str:
    """Return how a job ended, in words; empty if it ended as it should."""
    if job.code == DONE or job.cancelled:
        return ""
    ended = "ended" if job.code is None else f"exit code {job.code}"
    return f"{ended}: {job.why}" if job.why else ended
