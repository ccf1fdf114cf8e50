"""Entries of supervisor and syncer about members: admissions, statuses, ends and their reasons."""

from islands.protocol.identities import Role, Status
from islands.protocol.messages.control import Verb
from islands.protocol.tape.entry import Entry, Logged


class Admitted(Logged, frozen=True, tag="admitted"):
    """A supervisor admitted a process under a new incarnation, by the invitation of a person.

    A process that has the run's token needs none.
    """

    name: str
    role: Role
    incarnation: str
    invited: str | None = None


class Promoted(Logged, frozen=True, tag="promoted"):
    """A standby may be the syncer now, in the place of the one whose journal it has copied."""

    name: str
    takes_over: str


class Recognised(Logged, frozen=True, tag="recognised"):
    """A supervisor heard a member that an earlier start of the supervisor had admitted."""

    name: str
    incarnation: str


class StatusChanged(Logged, frozen=True, tag="status"):
    """A member became live, suspect or stalled; a syncer that learns of it records it as well."""

    name: str
    status: Status


class Evicted(Logged, frozen=True, tag="evicted"):
    """A supervisor evicted an incarnation."""

    name: str
    incarnation: str
    reason: str


class Left(Logged, frozen=True, tag="left"):
    """An incarnation left on its own will."""

    name: str
    incarnation: str
    reason: str


class ProcessStarted(Logged, frozen=True, tag="process_started"):
    """A process started that runs as a task in the same event loop as others."""

    name: str


class ProcessEnded(Logged, frozen=True, tag="process_ended"):
    """A process ended by itself: a supervisor records the `reason`, a host of tasks the `error`.

    Either is empty after an orderly end. The rest is of simulated processes alone.
    """

    name: str
    reason: str | None = None
    error: str | None = None
    mailbox_most: int | None = None
    waiting_bytes_most: int | None = None


class Killed(Logged, frozen=True, tag="killed"):
    """A supervisor killed a stalled process; if the reason is empty, a demo killed it."""

    name: str
    reason: str = ""


class GaveUp(Logged, frozen=True, tag="gave_up"):
    """A process ended too often, and its supervisor gave up restarting it."""

    name: str
    reason: str


class Commanded(Logged, frozen=True, tag="commanded"):
    """A supervisor handled an operator's command; `told` is the answer.

    `by` is the name of the operator's invitation, or `operator` if it has the run's key.
    """

    done: bool
    told: str
    verb: Verb
    target: str
    count: int
    by: str


class StoodStill(Logged, frozen=True, tag="stood_still"):
    """A supervisor's process was suspended or blocked; all deadlines move by the gap."""

    gap_s: float


class Paused(Logged, frozen=True, tag="paused"):
    """The run was paused by an operator."""


class Resumed(Logged, frozen=True, tag="resumed"):
    """The run was resumed by an operator."""


class LinkUnsteady(Logged, frozen=True, tag="link_unsteady"):
    """A learner's link to the syncer was lost `times` times in two minutes, and opened again."""

    name: str
    times: int


class Linked(Entry, frozen=True, tag="linked"):
    """A member opened a session with the syncer."""

    name: str
    incarnation: str


class Unlinked(Entry, frozen=True, tag="unlinked"):
    """A member's link to the syncer was lost or closed."""

    name: str


class Retired(Logged, frozen=True, tag="retired"):
    """The syncer ended an incarnation, and accepts nothing more from it."""

    name: str
    incarnation: str
    reason: str


class Adapted(Logged, frozen=True, tag="adapted"):
    """A learner's contributions have another `precision`: the last moved `bytes` in `seconds`.

    It left `before_s` after it was asked for; at most `budget_s` of a contribution is hidden.
    """

    name: str
    precision: str
    reason: str
    bytes: int
    seconds: float
    bytes_per_s: float
    before_s: float
    budget_s: float


class WrongReport(Logged, frozen=True, tag="wrong_report"):
    """A report cannot be true, and claims `untold_tokens` that no account has; or a contribution.

    Its sender's incarnation ends. The third wrong one in ten minutes is refused for good, and of
    contributions that one alone is told.
    """

    name: str
    reason: str
    untold_tokens: int | None = None


class Diverged(Logged, frozen=True, tag="diverged"):
    """A learner's loss was not finite and its incarnation ended, for the time number `times`."""

    name: str
    incarnation: str
    times: int
