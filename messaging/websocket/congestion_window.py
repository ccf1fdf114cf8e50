"""Congestion window of a bulk socket: how many bytes may be in flight; pure.

A sender that writes as fast as the system accepts bytes fills every queue on the path to the peer,
and delays all other traffic on it: a shaper with a queue of two seconds makes a heartbeat two
seconds late. So the sender asks for echoes. It sends a mark behind the bytes; the peer echoes the
mark when it has read up to there, with the time of its own clock. Mark and echo yield two figures:

    rate of the path   = bytes in flight when the mark was sent / time until its echo
    delay by queueing  = passage of the mark − the least passage seen, where
    passage            = time at the peer when it arrived − time here when it was sent

The first is Little's law and holds however the bytes were spread. The second is of this direction
alone: queues that the peer's own bulk builds delay the echo, but the peer has to keep them short.
The bytes that may be in flight are those which the path drains within the time that an echo takes
without our queue, plus the delay that is allowed:

    window = rate × (time until the echo − delay + allowed)

As long as the delay is less than is allowed, the sender itself is the bottleneck: the window grows,
up to twice what was in flight when the mark was sent, and on a path without a queue it soon stops
limiting. Longer delays shrink it to the figure above at once.

No computation here requires the two clocks to agree. A passage is no duration: it includes the
offset between the two clocks. Only differences of passages count, in which the offset cancels, and
over the `REFRESH_S` for which a least passage counts even a bad clock drifts by a few
milliseconds. Only the speed of our own sending depends on it. A queue cannot have delayed a mark
for longer than its echo took; so if a clock jumps, or a peer invents its times, at worst the
whole round trip takes the place of the passage, which bounds a window too.

The least passage becomes stale, because paths change, and because a sender never sees it again
while it keeps a queue of its own. So every `REFRESH_S` the window shrinks to the floor until the
bytes in flight have drained; the echo after that sets the new least. By then the path is empty, and
all bytes that may be in flight would enter its queue at once; so the window reopens at what the
path drains within the delay that is allowed, and grows from there.

Reference: the window is that of FAST TCP (Wei et al. 2006), the refresh that of BBR (Cardwell et
al. 2016); the aim, to yield to other traffic at a bounded delay, and the delay of one direction are
those of LEDBAT (RFC 6817).
"""

from collections import deque
from dataclasses import dataclass
from math import inf

FLOOR_BYTES = 1 << 13
START_BYTES = 1 << 16
CEILING_BYTES = 1 << 26
REFRESH_S = 20.0
MARKS_PER_WINDOW = 4
MARK_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark that was sent after so many bytes, and whose echo has not come.

    `in_flight` are the bytes since the last echoed mark at its time. The passage of a `fresh` one
    becomes the new least, because little was in flight.
    """

    number: int
    sent_bytes: int
    in_flight: int
    sent_s: float
    fresh: bool


class CongestionWindow:
    """How many bytes (`window`) one bulk socket may have in flight.

    `delay_s` is the delay by queueing, according to the last echo.
    """

    def __init__(self, allowed_s: float, chunk_bytes: int) -> None:
        """Start with `START_BYTES`; the sender may cause a queueing delay of `allowed_s`."""
        self.window = START_BYTES
        self.delay_s = 0.0
        self._allowed_s = allowed_s
        self._largest = chunk_bytes
        self._sent = 0
        self._echoed = 0
        self._marked = 0  # bytes sent before the last mark
        self._number = 0
        self._marks: deque[Mark] = deque()
        self._least_s = inf  # passage
        self._least_at_s = 0.0
        self._refreshing = False
        self._set_limit()

    @property
    def in_flight(self) -> int:
        """Bytes sent since the last mark that was echoed."""
        return self._sent - self._echoed

    @property
    def chunk_bytes(self) -> int:
        """How large the next frame may be: any window has room for several frames."""
        return max(FLOOR_BYTES // 2, min(self._largest, self._limit // MARKS_PER_WINDOW))

    @property
    def awaits_echo(self) -> bool:
        return bool(self._marks)

    def may_send(self) -> bool:
        """Whether there is room for another frame; if not, wait for an echo."""
        return self._sent - self._echoed < self._limit

    def sent(self, size_bytes: int) -> None:
        self._sent += size_bytes

    def mark_due(self) -> bool:
        """Whether a mark must be sent now: enough bytes are unmarked, or the window is full."""
        unmarked = self._sent - self._marked
        if unmarked <= 0:
            return False
        return unmarked >= self._mark_every or not self.may_send()

    def mark(self, now_s: float) -> int:
        """Note that a mark is sent now, and return its number."""
        self._number += 1
        in_flight = self.in_flight
        fresh = self._refreshing and in_flight <= 2 * FLOOR_BYTES
        self._marks.append(Mark(self._number, self._sent, in_flight, now_s, fresh))
        self._marked = self._sent
        return self._number

    def echoed(self, number: int, now_s: float, received_s: float) -> bool:
        """Note the echo of a mark; return False if no such mark awaits one."""
        while self._marks and self._marks[0].number < number:
            self._marks.popleft()  # its echo was lost; this later one says more
        if not self._marks or self._marks[0].number != number:
            return False
        mark = self._marks.popleft()
        self._echoed = mark.sent_bytes
        took_s = max(now_s - mark.sent_s, 1e-6)
        passage_s = received_s - mark.sent_s
        self._learn_least(mark, passage_s, now_s)
        self.delay_s = min(passage_s - self._least_s, took_s)
        if not self._refreshing:
            self._adapt(mark, took_s)
            if now_s - self._least_at_s > REFRESH_S:
                self._refresh(mark, took_s)
        self._set_limit()
        return True

    def _set_limit(self) -> None:
        self._limit = FLOOR_BYTES if self._refreshing else self.window
        self._mark_every = min(self._limit // MARKS_PER_WINDOW, MARK_BYTES_MAX)

    def _learn_least(self, mark: Mark, passage_s: float, now_s: float) -> None:
        if passage_s <= self._least_s or mark.fresh:
            self._least_s = passage_s
            self._least_at_s = now_s
            self._refreshing = False

    def _refresh(self, mark: Mark, took_s: float) -> None:
        self._refreshing = True
        drained = int(mark.in_flight / took_s * self._allowed_s)
        self.window = max(FLOOR_BYTES, min(self.window, drained))

    def _adapt(self, mark: Mark, took_s: float) -> None:
        ratio = (took_s - self.delay_s + self._allowed_s) / took_s
        wanted = int(mark.in_flight * min(ratio, 2.0))
        if ratio < 1.0:
            self.window = max(FLOOR_BYTES, min(self.window, wanted))
        else:
            self.window = min(CEILING_BYTES, max(self.window, wanted))
