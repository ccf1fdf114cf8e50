"""One trial of hostile input, with what it measured."""

import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

KIB = 1024.0


@dataclass(slots=True)
class Trial:
    """So many inputs of one kind of peer, drawn from one seed.

    Attributes:
        only: the one type of message that is said; None: all.
        measuring: whether turns of the loop count: while the input comes.
        loop_ms: the longest turn, as CPU time of the loop's thread.
        bytes_sent: to the peer, in all.
        stored_bytes: what the tape and records grew by, in all.
        granted_tokens: the most that the peer had at once, and had not used.
        end_s: until the run had ended, or the peer was shown out, on the virtual clock.
        memory_kib: the most that was held, beyond what there was before.
        problems: what must never be.
    """

    kind: str
    seed: int
    inputs: int
    chance: random.Random
    traced: bool = False
    only: type | None = None
    measuring: bool = False
    loop_ms: float = 0.0
    bytes_sent: int = 0
    stored_bytes: float = 0.0
    granted_tokens: int = 0
    end_s: float = 0.0
    memory_kib: float = 0.0
    types: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    before_bytes: int = 0
    own_s: float = 0.0

    def begin(self) -> None:
        self.measuring = True
        if self.traced:
            self.before_bytes = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Do the peer's own work, which is none of the loop that is measured."""
        began_s = time.thread_time()
        self.look()
        yield
        self.own_s += time.thread_time() - began_s
        if self.traced:
            tracemalloc.reset_peak()

    @contextmanager
    def theirs(self) -> Iterator[None]:
        """Do a part of the receiver's work, of one input, in the midst of one's own."""
        if self.traced:
            tracemalloc.reset_peak()
        began_s = time.thread_time()
        yield
        self.look()
        took_s = time.thread_time() - began_s
        if self.measuring and not self.traced:
            self.loop_ms = max(self.loop_ms, 1000 * took_s)

    def turned(self, took_s: float) -> None:
        if self.measuring and not self.traced:
            self.loop_ms = max(self.loop_ms, 1000 * (took_s - self.own_s))
        self.own_s = 0.0

    def look(self) -> None:
        """Note how much was held at most since the peer's own work."""
        if self.traced and self.measuring:
            held = tracemalloc.get_traced_memory()[1] - self.before_bytes
            self.memory_kib = max(self.memory_kib, held / KIB)

    def measured(self) -> dict[str, float]:
        count = max(1, self.inputs)
        return {
            "memory": self.memory_kib,
            "loop": self.loop_ms,
            "bytes_sent": self.bytes_sent / count,
            "stored": self.stored_bytes / count,
            "granted": self.granted_tokens,
            "end": self.end_s,
        }
