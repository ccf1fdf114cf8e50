"""Calls of a supervisor into its host: start processes, keep what members say, hear of ends."""

from collections.abc import Callable
from dataclasses import dataclass

from islands.protocol.identities import Role
from islands.protocol.messages.control import Note, StepFigures


def ignored(*_: object) -> None:
    """The default of a callback."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of one supervisor into its host.

    Args:
        start: starts the process of a name after a delay in seconds.
        kill: kills the process of a name at once.
        noted: gets a member's name and role, and an entry of its tape for the run's folder; None if
            members write to the same tape.
        figures: gets a member's name and the step figures of its process.
        gave_up: gets the name of a process that is not restarted any more, and the reason.
        run_ended: gets the reason and the syncer's part of the summary.
        finished: gets the reason when the run is over.
        status: returns the run's status, for the answers to an operator's commands.
    """

    start: Callable[[str, float], None] = ignored
    kill: Callable[[str], None] = ignored
    noted: Callable[[str, Role, Note], None] | None = None
    figures: Callable[[str, StepFigures], None] = ignored
    gave_up: Callable[[str, str], None] = ignored
    run_ended: Callable[[str, bytes], None] = ignored
    finished: Callable[[str], None] = ignored
    status: Callable[[], bytes] = bytes
