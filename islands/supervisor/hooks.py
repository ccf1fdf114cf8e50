"""What the host of a supervisor does: start processes, keep what members say, hear of ends."""

from collections.abc import Callable
from dataclasses import dataclass

from islands.identities import Role
from islands.messages.control import Note, StepFigures


@dataclass(frozen=True, slots=True)
class Hooks:
    """Calls of one supervisor into its host; what is None is not done.

    Args:
        start: starts a process after a delay.
        kill: kills a process at once.
        noted: called with a member's name, its role, and what the folder is to keep of its tape.
        figures: called with a member's name and the figures of its process.
        gave_up: called with the name of a process that is not started again, and with why not.
        run_ended: called with the reason and the syncer's share of the summary.
        finished: called with the reason when the run is over.
    """

    start: Callable[[str, float], None] | None = None
    kill: Callable[[str], None] | None = None
    noted: Callable[[str, Role, Note], None] | None = None
    figures: Callable[[str, StepFigures], None] | None = None
    gave_up: Callable[[str, str], None] | None = None
    run_ended: Callable[[str, bytes], None] | None = None
    finished: Callable[[str], None] | None = None
