"""Programs of a cluster that engines run, such as `squeue` and `kubectl`."""

import subprocess
from collections.abc import Mapping, Sequence
from subprocess import CompletedProcess

from islands.engines.engine import EngineAway, Unplaceable

LIMIT_S = 60.0
"""Longest time that a command may take; Slurm's ask an absent controller for 10 s themselves."""


def run_command(
    engine: str, words: Sequence[str], text: str = "", variables: Mapping[str, str] | None = None
) -> "CompletedProcess[str]":
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
