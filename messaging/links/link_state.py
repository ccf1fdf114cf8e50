"""Decides how a dialled session is kept alive; pure, see `dialer` for the effects.

    IDLE ──Started──▶ DIALLING ──Dialled──▶ OPEN ──Lost──▶ WAITING ──TimerDue──▶ DIALLING
                          │                   ▲ │              ▲
                          │                   └─┘ Heard, Held, │
                          └──────DialRefused── TimerDue ───────┘        StopRequested ──▶ STOPPED

Back-off: the n-th attempt in a row without a stable session waits first_s × factor^(n−1), at most
longest_s, of which a share is random so that peers which lost the same host do not return in one
moment. A session counts as stable, and the row begins anew, once it has lasted `stable_s`: a link
that flaps is dialled ever more rarely, although each dial succeeds.

Liveness: a session on which nothing was heard for `liveness_s` is closed, for a connection that is
cut looks exactly like one on which nobody speaks. To be heard oneself one speaks every
`heartbeat_s`. There is one timer; it is moved only when it fires, so that hearing costs nothing.
A timer that fires late means that this process itself stood still, and that what came meanwhile
waits unread: the peer gets its full time anew. So it does when this process had no room for what
came: while it does not read, it cannot hear.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from messaging.errors import LocalFault

OWN_PAUSE = 0.25
"""A timer that is late by this share of `liveness_s` is taken for a pause of this process."""


@dataclass(frozen=True, slots=True)
class DialSettings:
    """How a session is kept alive.

    Attributes:
        backoff_first_s: Wait after the first loss.
        backoff_factor: By what the wait grows with each further attempt.
        backoff_longest_s: Bound of the wait.
        jitter: Share of the wait that is random, from 0 to 1.
        dial_timeout_s: How long one attempt may take.
        stable_s: After so long a session, waits begin anew at `backoff_first_s`.
        heartbeat_s: How often to speak; None: never.
        liveness_s: How long the peer may be silent; None: for ever.
    """

    backoff_first_s: float = 0.1
    backoff_factor: float = 2.0
    backoff_longest_s: float = 5.0
    jitter: float = 0.5
    dial_timeout_s: float = 5.0
    stable_s: float = 5.0
    heartbeat_s: float | None = None
    liveness_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse settings under which no session could be kept.

        Raises:
            LocalFault: A value is out of range.
        """
        waits = (self.backoff_first_s, self.backoff_longest_s, self.dial_timeout_s)
        if min(waits) <= 0 or self.backoff_factor < 1:
            raise LocalFault("back-off and timeout of a dialler are positive and do not shrink")
        if not 0 <= self.jitter <= 1:
            raise LocalFault(f"jitter is a share from 0 to 1, not {self.jitter}")


class Phase(StrEnum):
    """Where a session stands."""

    IDLE = "idle"
    DIALLING = "dialling"
    OPEN = "open"
    WAITING = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Started:
    """The dialler runs."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """The session is open."""


@dataclass(frozen=True, slots=True)
class DialRefused:
    """No session came about; `jitter` is a random number from 0 to 1."""

    reason: str
    jitter: float


@dataclass(frozen=True, slots=True)
class Heard:
    """Something came from the peer."""


@dataclass(frozen=True, slots=True)
class Held:
    """Something came from the peer, and nothing more is read until there is room for it here.

    `Heard` says that there is.
    """


@dataclass(frozen=True, slots=True)
class Lost:
    """The session is over, whoever ended it; `jitter` is a random number from 0 to 1."""

    reason: str
    jitter: float


@dataclass(frozen=True, slots=True)
class TimerDue:
    """The time of the last `SetTimer` has come."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The owner wants no session any more."""

    reason: str


LinkEvent = Started | Dialled | DialRefused | Heard | Held | Lost | TimerDue | StopRequested


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a session with this address, within the timeout of the settings."""

    address: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report `TimerDue` at this time, instead of any time set before; None: never."""

    at_s: float | None


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Say something to the peer."""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close the session; it is then reported as lost."""

    reason: str


LinkAction = Dial | SetTimer | SendHeartbeat | CloseSession


class LinkState:
    """State of one dialled session.

    Attributes:
        phase: Where the session stands.
        attempts: Attempts in a row without a stable session.
        stop_reason: Why it was stopped; None while it is not.
    """

    def __init__(self, addresses: tuple[str, ...], settings: DialSettings) -> None:
        """Prepare to dial the addresses in turn.

        Raises:
            LocalFault: There is no address.
        """
        if not addresses:
            raise LocalFault("a dialler needs at least one address")
        self.phase = Phase.IDLE
        self.attempts = 0
        self.stop_reason: str | None = None
        self._addresses = addresses
        self._settings = settings
        self._next_address = 0
        self._opened_s = 0.0
        self._heard_s = 0.0
        self._held = False
        self._spoke_s = 0.0
        self._deadline_s: float | None = None

    def handle(self, event: LinkEvent, *, now_s: float) -> list[LinkAction]:
        """Take note of an event and return what is to be done, in this order.

        An event that no longer fits the phase, such as a timer that fired in the moment of a
        loss, changes nothing.
        """
        match event:
            case Heard() | Held():
                self._heard_s = now_s
                self._held = isinstance(event, Held)
                return []
            case Started():
                return self._dial() if self.phase is Phase.IDLE else []
            case Dialled():
                return self._open(now_s)
            case DialRefused():
                if self.phase is not Phase.DIALLING:
                    return []
                self._next_address = (self._next_address + 1) % len(self._addresses)
                return self._wait(event.jitter, now_s)
            case Lost():
                return self._lose(event.jitter, now_s)
            case TimerDue():
                return self._timer_due(now_s)
            case StopRequested():
                return self._stop(event.reason)
            case _:
                assert_never(event)

    def _dial(self) -> list[LinkAction]:
        self.phase = Phase.DIALLING
        return [Dial(self._addresses[self._next_address])]

    def _open(self, now_s: float) -> list[LinkAction]:
        if self.phase is not Phase.DIALLING:
            return [CloseSession("no session is wanted any more")]
        self.phase = Phase.OPEN
        self._held = False
        self._opened_s = self._heard_s = self._spoke_s = now_s
        return [SetTimer(self._set_deadline())]

    def _lose(self, jitter: float, now_s: float) -> list[LinkAction]:
        if self.phase is not Phase.OPEN:
            return []
        if now_s - self._opened_s >= self._settings.stable_s:
            self.attempts = 0
        return self._wait(jitter, now_s)

    def _wait(self, jitter: float, now_s: float) -> list[LinkAction]:
        settings = self._settings
        self.phase = Phase.WAITING
        grown_s = settings.backoff_first_s * settings.backoff_factor ** min(self.attempts, 64)
        wait_s = min(grown_s, settings.backoff_longest_s)
        wait_s *= 1.0 - settings.jitter * jitter
        self.attempts += 1
        return [SetTimer(now_s + wait_s)]

    def _timer_due(self, now_s: float) -> list[LinkAction]:
        if self.phase is Phase.WAITING:
            return self._dial()
        if self.phase is not Phase.OPEN:
            return []
        settings = self._settings
        self._forgive_own_pause(now_s)
        if settings.liveness_s is not None and now_s >= self._heard_s + settings.liveness_s:
            silent_s = now_s - self._heard_s
            return [SetTimer(None), CloseSession(f"nothing heard for {silent_s:.3g} s")]
        actions: list[LinkAction] = []
        if settings.heartbeat_s is not None and now_s >= self._spoke_s + settings.heartbeat_s:
            self._spoke_s = now_s
            actions.append(SendHeartbeat())
        return [*actions, SetTimer(self._set_deadline())]

    def _stop(self, reason: str) -> list[LinkAction]:
        if self.phase is Phase.STOPPED:
            return []
        was_open = self.phase is Phase.OPEN
        self.phase = Phase.STOPPED
        self.stop_reason = reason
        closing: list[LinkAction] = [CloseSession(reason)] if was_open else []
        return [SetTimer(None), *closing]

    def _forgive_own_pause(self, now_s: float) -> None:
        liveness_s = self._settings.liveness_s
        if liveness_s is None or self._deadline_s is None:
            return
        late_s = now_s - self._deadline_s
        if self._held or late_s >= OWN_PAUSE * liveness_s:
            self._heard_s = now_s

    def _set_deadline(self) -> float | None:
        settings = self._settings
        deadlines_s: list[float] = []
        if settings.heartbeat_s is not None:
            deadlines_s.append(self._spoke_s + settings.heartbeat_s)
        if settings.liveness_s is not None:
            deadlines_s.append(self._heard_s + settings.liveness_s)
        self._deadline_s = min(deadlines_s, default=None)
        return self._deadline_s
