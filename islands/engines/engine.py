"""The port through which islands are placed: an engine places one, ends one, and lists them.

An engine gangs the hosts of one island, and never islands: that would bring back the barrier that
decoupling removes. It answers for its *jobs* alone, which ones there are, and how they ended: the
supervisor knows by heartbeats who is a member, and an incarnation that was placed twice is fenced.
All calls block, and are made on a thread of the engine's own, one at a time (`launcher.py`).
"""

import shlex
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Protocol

import yaml

from islands.engines.needs import ENGINES, Needs
from islands.protocol.errors import DONE, IslandsError, SettingsError, UserError

WORDS = 400  # at most so many characters of what an engine says are passed on
LIMIT_S = 60.0
"""Longest time that a command may take; Slurm's ask an absent controller for 10 s themselves."""

PORT = 7200
"""The port at which rank 0 of an island of several hosts serves the others; JAX takes the next."""

RANK, ADDRESS = "ISLANDS_RANK", "ISLANDS_ADDRESS"
"""Variables that an engine sets on each host of an island of several: the host's number, and the
address (without a port) at which the others reach rank 0."""


class Unplaceable(UserError):  # noqa: N818  (it is shown as a sentence)
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
    """A job of this run, of the island `name`; `job` is the engine's own name of it.

    In the engine's words are its hosts, and why it waits or how it ended; either may be empty. It
    counts how often the engine itself has started the job again. An exit code is that of its
    command, if the engine tells one. A `cancelled` one was ended on purpose by the engine's own
    means, and one that never `began`, since its engine let it wait no longer, is placed again.
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
    """A run's name, and eight hexadecimal digits of this beginning of it alone.

    The mark distinguishes two runs of one name on one engine.
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
    """An island that is to be placed, such as site-0, for the n-th time (`attempt`).

    The command of each of its hosts is a line of shell, with variables of which `secrets` are shown
    to nobody. Run, name and attempt name a job, where engines let its name be chosen.
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

        For engines that cannot set variables it `exports` them before, secrets left out.
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


def make_engine(name: str, of: RunMark, settings: Mapping[str, str]) -> Engine:
    """Return an engine, without asking it anything."""
    module, _, kind = ENGINES.get(name, name).partition(":")
    if not kind:
        known = ", ".join(ENGINES)
        raise SettingsError(f"engine is {name!r}; it must be one of {known}, or module:class")
    try:
        make = getattr(import_module(module), kind)
    except (ModuleNotFoundError, AttributeError) as error:
        raise SettingsError(f"engine is {name!r}; it cannot be found: {error}") from error
    engine: Engine = make(of, settings)
    return engine


def check_settings(engine: str, settings: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse a setting of an entry that its engine does not know."""
    for key in settings:
        if key not in known:
            raise SettingsError(
                f"settings.{key} is not known to {engine}; it may have {', '.join(known)}"
            )


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they stand, and repeats what occurs twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


def yaml_of(described: object) -> str:
    return yaml.dump(described, Dumper=_Dumper, sort_keys=False, width=100)


def one_line(said: object) -> str:
    """Return what an engine says on one line that is not too long."""
    line = " ".join(str(said).split())
    return line if len(line) <= WORDS else f"{line[:WORDS]}…"


def end_in_words(job: Job) -> str:
    """Return how a job ended, in words; empty if it ended as it should."""
    if job.code == DONE or job.cancelled:
        return ""
    ended = "ended" if job.code is None else f"exit code {job.code}"
    return f"{ended}: {job.why}" if job.why else ended


def run_command(
    engine: str, words: Sequence[str], text: str = "", variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command with a text as its input to its end, and return what it printed."""
    try:
        return subprocess.run(
            words,
            input=text,
            env=None if variables is None else dict(variables),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise Unplaceable(
            f"the engine {engine} needs the command {words[0]}, which this host does not have: "
            "start the hub where it is, or install it"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineAway(f"{engine} does not answer: {words[0]} took over {LIMIT_S:g} s") from error


def said_by(command: str, said: str) -> str:
    """Return what a command wrote as its error, as one line without the command's own name."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for prefix in (f"{command}: ", "error: ", "fatal: "):
        lines = [line.removeprefix(prefix) for line in lines]
    return "; ".join(dict.fromkeys(lines)) or f"{command} failed without a word"
