"""Decides how many bulk bytes may be under way; pure.

A sender that writes as fast as the system takes it fills every queue between itself and the peer,
and whoever shares the way waits behind it: a shaper with a queue of two seconds makes a heartbeat
two seconds late. So the sender asks for echoes. A mark is sent behind the bytes, the peer echoes
it when it has read up to there, and both together tell two things:

    rate of the way    = bytes under way when the mark was sent / time until its echo
    delay by queueing  = time until its echo − the least such time ever seen

The first is Little's law and holds however the bytes were spread. The bytes that may be under way
are those which the way drains within the least time plus the delay that is allowed:

    window = rate × (least + allowed)

As long as echoes return sooner than that, the sender is what limits: the window grows, up to twice
what was under way when the mark was sent, and on a way without a queue it soon limits nothing.
Echoes that return later shrink it to the figure above at once.

The least time grows stale, because ways change, and because a sender never sees it again while it
keeps a queue of its own. So every `REFRESH_S` the window is closed to the floor until what is
under way has drained; the echo after that is the new least time.

Reference: the window is that of FAST TCP (Wei et al. 2006), the refresh that of BBR (Cardwell et
al. 2016), the aim that of LEDBAT (RFC 6817): to make way for others at a bounded delay.
"""

from collections import deque
from dataclasses import dataclass

FLOOR_BYTES = 1 << 13
START_BYTES = 1 << 16
CEILING_BYTES = 1 << 26
REFRESH_S = 20.0
MARKS_PER_WINDOW = 4
MARK_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Mark:
    """What is remembered of a mark until its echo.

    Attributes:
        number: Of this mark, counted from 1.
        sent_bytes: Everything sent before it.
        under_way: Bytes between it and the last echo when it was sent.
        sent_s: When it was sent.
        fresh: Whether it tells the least time anew, because little was under way.
    """

    number: int
    sent_bytes: int
    under_way: int
    sent_s: float
    fresh: bool


class Pace:
    """How many bytes one bulk socket may have under way.

    Attributes:
        window: The bytes that may be under way.
        least_s: The least time between a mark and its echo; None before the first.
        delay_s: Delay by queueing that the last echo told of.
    """

    def __init__(self, allowed_s: float, chunk_bytes: int) -> None:
        """Start without knowledge of the way.

        Args:
            allowed_s: Delay by queueing that the sender may cause.
            chunk_bytes: Largest frame that is wanted.
        """
        self.window = START_BYTES
        self.least_s: float | None = None
        self.delay_s = 0.0
        self._allowed_s = allowed_s
        self._largest = chunk_bytes
        self._sent = 0
        self._echoed = 0
        self._marked = 0  # bytes sent before the last mark
        self._number = 0
        self._marks: deque[Mark] = deque()
        self._least_at_s = 0.0
        self._refreshing = False
        self._set_limit()

    @property
    def under_way(self) -> int:
        """Bytes sent since the last mark that was echoed."""
        return self._sent - self._echoed

    @property
    def chunk_bytes(self) -> int:
        """How large the next frame may be: several go into a window, however small it is."""
        return max(FLOOR_BYTES // 2, min(self._largest, self._limit // MARKS_PER_WINDOW))

    @property
    def awaits_echo(self) -> bool:
        """Whether a mark is out."""
        return bool(self._marks)

    def may_send(self) -> bool:
        """Whether there is room for another frame; if not, wait for an echo."""
        return self._sent - self._echoed < self._limit

    def sent(self, size_bytes: int) -> None:
        """Note that a frame was handed over."""
        self._sent += size_bytes

    def mark_due(self) -> bool:
        """Whether a mark must be sent now: enough bytes are behind the last one, or no room."""
        unmarked = self._sent - self._marked
        if unmarked <= 0:
            return False
        return unmarked >= self._mark_every or not self.may_send()

    def mark(self, now_s: float) -> int:
        """Note that a mark is sent now, and return its number."""
        self._number += 1
        under_way = self.under_way
        fresh = self._refreshing and under_way <= 2 * FLOOR_BYTES
        self._marks.append(Mark(self._number, self._sent, under_way, now_s, fresh))
        self._marked = self._sent
        return self._number

    def echoed(self, number: int, now_s: float) -> bool:
        """Note the echo of a mark; False if no such mark is out."""
        while self._marks and self._marks[0].number < number:
            self._marks.popleft()  # its echo is lost; this one says more
        if not self._marks or self._marks[0].number != number:
            return False
        mark = self._marks.popleft()
        self._echoed = mark.sent_bytes
        took_s = max(now_s - mark.sent_s, 1e-6)
        self._learn_least(mark, took_s, now_s)
        assert self.least_s is not None
        self.delay_s = took_s - self.least_s
        self._adapt(mark, took_s)
        self._set_limit()
        return True

    def _set_limit(self) -> None:
        self._limit = FLOOR_BYTES if self._refreshing else self.window
        self._mark_every = min(self._limit // MARKS_PER_WINDOW, MARK_BYTES_MAX)

    def _learn_least(self, mark: Mark, took_s: float, now_s: float) -> None:
        if self.least_s is None or took_s <= self.least_s or mark.fresh:
            self.least_s = took_s
            self._least_at_s = now_s
            self._refreshing = False
        elif now_s - self._least_at_s > REFRESH_S:
            self._refreshing = True

    def _adapt(self, mark: Mark, took_s: float) -> None:
        assert self.least_s is not None
        ratio = (self.least_s + self._allowed_s) / took_s
        wanted = int(mark.under_way * min(ratio, 2.0))
        if ratio < 1.0:
            self.window = max(FLOOR_BYTES, min(self.window, wanted))
        else:
            self.window = min(CEILING_BYTES, max(self.window, wanted))
