"""What supervisor and syncer record of members: who is here, who was ended, and why."""

from islands.identities import Role, Status
from islands.messages.control import Verb
from islands.tape.entry import Entry, Logged

# --- the supervisor's view ------------------------------------------------------------------------


class Admitted(Logged, frozen=True):
    """A supervisor gave an incarnation."""

    name: str
    role: Role
    incarnation: str


class Recognised(Logged, frozen=True):
    """A supervisor heard a member that an earlier start of it had admitted."""

    name: str
    incarnation: str


class StatusChanged(Logged, frozen=True, tag="status"):
    """A member is heard, silent or stalled; also a syncer says so once it has been told."""

    name: str
    status: Status


class Evicted(Logged, frozen=True):
    """An incarnation was ended against its will."""

    name: str
    incarnation: str
    reason: str


class Left(Logged, frozen=True):
    """An incarnation ended on its own will."""

    name: str
    incarnation: str
    reason: str


class ProcessStarted(Logged, frozen=True):
    """A process began that runs as a task beside the others."""

    name: str


class ProcessEnded(Logged, frozen=True):
    """A process ended by itself, as a supervisor takes it (`reason`), or its host (`error`).

    It is empty if the process meant to end. A simulated one tells the most that waited in it.
    """

    name: str
    reason: str | None = None
    error: str | None = None
    mailbox_most: int | None = None
    waiting_bytes_most: int | None = None


class Killed(Logged, frozen=True):
    """A process stood still, and its supervisor ended it; without a reason, a demo did."""

    name: str
    reason: str = ""


class GaveUp(Logged, frozen=True):
    """A process ended too often and is not started again."""

    name: str
    reason: str


class Commanded(Logged, frozen=True):
    """An operator asked for something; `told` is the answer."""

    done: bool
    told: str
    verb: Verb
    target: str
    count: int


class StoodStill(Logged, frozen=True):
    """A supervisor's host was busy, or asleep: nobody is judged by the time that it missed."""

    gap_s: float


class Paused(Logged, frozen=True):
    """The run stands still by an operator's will."""


class Resumed(Logged, frozen=True):
    """The run goes on."""


# --- the syncer's sessions ------------------------------------------------------------------------


class Linked(Entry, frozen=True):
    """A member said hello to the syncer, and was let in."""

    name: str
    incarnation: str


class Unlinked(Entry, frozen=True):
    """A member's link to the syncer is gone."""

    name: str


class Retired(Logged, frozen=True):
    """The syncer ended an incarnation: nothing more is taken from it."""

    name: str
    incarnation: str
    reason: str


class Quarantined(Logged, frozen=True):
    """A learner did three times what no honest one does."""

    name: str
    reason: str


class WrongReport(Logged, frozen=True):
    """A learner said what cannot be true; tokens that it says it did and no book knows."""

    name: str
    reason: str
    untold_tokens: int | None = None


class Diverged(Logged, frozen=True):
    """A learner's loss was not finite: it begins again, for the time number `times`."""

    name: str
    incarnation: str
    times: int


class Overloaded(Logged, frozen=True):
    """A worker of the syncer is full, or ("") none is any more."""

    told: str
    worker: str
    share: float
    waiting: int
    rounds: int
    left_out: int
