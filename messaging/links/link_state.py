"""Decides how a dialled session is kept alive; pure, see `dialer` for the effects.

    IDLE ──Started──▶ DIALLING ──Dialled──▶ OPEN ──Lost──▶ WAITING ──TimerDue──▶ DIALLING
                          │                   ▲ │              ▲
                          │                   └─┘ Heard, Held, │
                          └──────DialRefused── TimerDue ───────┘        StopRequested ──▶ STOPPED

Back-off: the n-th retry in a row without a stable session waits first_s × factor^(n−1), at most
longest_s; a share of it is random, so that peers which lost the same host do not return all at
once. A session counts as stable, and the count begins anew, once it has lasted `stable_s`: a link
that flaps is dialled ever more rarely, although each dial succeeds.

Liveness: a session on which nothing arrived for `liveness_s` is closed, because a cut connection
looks exactly like an idle one. This end sends a heartbeat every `heartbeat_s`, so that the peer
hears it too. There is one timer, which is set anew only when it fires, so that receiving costs
nothing. A timer that fires late means that this process itself was paused, and that messages which
came meanwhile wait unread: the liveness timeout starts anew. It also starts anew if this process
had no room for a message: while it does not read, it cannot hear.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from messaging.errors import LocalFault

OWN_PAUSE = 0.25
"""A timer that is late by this share of `liveness_s` counts as a pause of this process."""


@dataclass(frozen=True, slots=True)
class DialSettings:
    """How a session is kept alive.

    Attributes:
        backoff_first_s: Wait after the first loss.
        backoff_factor: Each further attempt multiplies the wait by it.
        backoff_longest_s: Upper bound of the wait.
        jitter: Share of the wait that is random, from 0 to 1.
        dial_timeout_s: How long one attempt may take.
        stable_s: After a session of this length, the wait begins again at `backoff_first_s`.
        heartbeat_s: Interval between heartbeats; None: none are sent.
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
        """Refuse settings with which no session could be kept open."""
        waits = (self.backoff_first_s, self.backoff_longest_s, self.dial_timeout_s)
        if min(waits) <= 0 or self.backoff_factor < 1:
            raise LocalFault("back-off and timeout of a dialler are positive and do not shrink")
        if not 0 <= self.jitter <= 1:
            raise LocalFault(f"jitter is a share from 0 to 1, not {self.jitter}")


class Phase(StrEnum):
    """Phase of a dialled session; the module's docstring shows the transitions."""

    IDLE = "idle"
    DIALLING = "dialling"
    OPEN = "open"
    WAITING = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Started:
    """The dialler has started."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """The session is open."""


@dataclass(frozen=True, slots=True)
class DialRefused:
    """No session could be opened; `jitter` is a random number from 0 to 1."""

    reason: str
    jitter: float


@dataclass(frozen=True, slots=True)
class Heard:
    """An envelope came from the peer, and there is room for it."""


@dataclass(frozen=True, slots=True)
class Held:
    """An envelope came from the peer, and nothing more is read until there is room for it.

    `Heard` reports that there is room.
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
    """The owner has asked to end the session for good."""

    reason: str


LinkEvent = Started | Dialled | DialRefused | Heard | Held | Lost | TimerDue | StopRequested


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a session with this address, within `dial_timeout_s`."""

    address: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report `TimerDue` at this time instead of any time set before; None: cancel the timer."""

    at_s: float | None


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat to the peer."""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close the session; the dialler then reports it as `Lost`."""

    reason: str


LinkAction = Dial | SetTimer | SendHeartbeat | CloseSession


class LinkState:
    """State of one dialled session.

    Attributes:
        phase: See `Phase`.
        attempts: Retries in a row without a stable session.
        stop_reason: Why the session was stopped; None while it is not.
    """

    def __init__(self, addresses: tuple[str, ...], settings: DialSettings) -> None:
        """Prepare to dial the addresses in turn."""
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
        """Process an event and return the actions to perform, in this order.

        An event that no longer fits the phase, such as a timer that fired just as the session was
        lost, changes nothing.
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
