"""What any process records of itself, and of whoever talks to it."""

from islands.messages.control import Verb
from islands.tape.entry import Entry, Logged


class TapeBegan(Entry, frozen=True, tag="tape"):
    """A tape begins here, or is continued; what follows is of this version."""

    version: int


class ProcessBegan(Entry, frozen=True):
    """A process began; what its clocks showed then."""

    pid: int
    wall_s: float
    loop_s: float


class Started(Logged, frozen=True):
    """A start of a supervisor, or of a syncer, which alone has a journal to resume from."""

    epoch: int
    resumed: bool | None = None
    sequence: int | None = None


class Waits(Entry, frozen=True):
    """A learner may not go on yet, and tries again."""

    reason: str


class Exit(Entry, frozen=True):
    """A learner's process ends; it failed if somebody has to do something."""

    reason: str
    failed: bool


class Failed(Logged, frozen=True):
    """An actor ends with an error."""

    error: str
    detail: str | None = None


class Unsendable(Logged, frozen=True):
    """An actor ends, since it has a message that no wire takes."""

    error: str


class Disk(Logged, frozen=True):
    """A disk is full or fails just now; what was to be written waits."""

    error: str


class Damaged(Logged, frozen=True):
    """Files that should be there are damaged or missing; the run goes on without them."""

    files: list[str]


class EntriesLost(Entry, frozen=True):
    """So many entries before this one could not be written."""

    entries: int


class NotesDropped(Logged, frozen=True):
    """So many notes of a member were not kept: it sent more than it may."""

    name: str
    notes: int


class Refused(Logged, frozen=True):
    """A peer was refused, or a command of an operator; `left_out` such entries came before."""

    name: str
    reason: str
    verb: Verb | None = None
    target: str | None = None
    count: int | None = None
    left_out: int | None = None


class Impostor(Entry, frozen=True):
    """A link spoke in another's name, and was dropped; `left_out` such entries came before."""

    name: str | None
    body: str
    left_out: int | None = None


class Unexpected(Entry, frozen=True):
    """A message came that nobody sends here; `left_out` such entries came before."""

    body: str
    left_out: int | None = None


class Undelivered(Entry, frozen=True):
    """A word between peers whose receiver cannot be reached; the first over its sender's link."""

    sender: str
    recipient: str | None


class Evaluation(Entry, frozen=True):
    """An observer evaluated the published values."""

    clock: float
    figures: dict[str, float]


class EvaluationFailed(Logged, frozen=True):
    """An evaluation raised; the next one comes as ever."""

    error: str
    detail: str
