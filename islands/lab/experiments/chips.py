"""The chips of one learner: failures, stalls, slices that go and come back.

A learner's chips lie in slices. An *elastic* learner stalls for a short while when a chip fails,
and goes on without its slice, which is ready again some minutes later; one that is not starts all
its chips again. Failures are drawn from a random stream of their own, so that they do not depend on
what else happens.

Reference: the event model of Decoupled DiLoCo (arXiv 2604.21428); its times are unpublished, and
the defaults here were fitted to its two rows of data-parallel training.
"""

import random
from dataclasses import dataclass, field
from math import inf
from typing import Annotated

from islands.protocol.settings.setting import NOT_NEGATIVE, POSITIVE

TOUCHING_S = 1e-6
"""Between two steps that follow one another; a virtual clock rounds."""


@dataclass(frozen=True, slots=True)
class Chips:
    """The chips of one learner, and what a failure costs it (`GoodputOptions`).

    `mtbi_s` is the mean time between the failures of one chip.
    """

    count: Annotated[float, POSITIVE]
    slice_chips: Annotated[float, POSITIVE] = 256.0
    mtbi_s: Annotated[float, POSITIVE] = 365.0 * 86400.0
    stall_s: Annotated[float, NOT_NEGATIVE] = 18.0
    return_s: Annotated[float, NOT_NEGATIVE] = 600.0
    rejoin_every_s: Annotated[float, NOT_NEGATIVE] = 300.0
    rejoin_stall_s: Annotated[float, NOT_NEGATIVE] = 16.0
    restart_s: Annotated[float, NOT_NEGATIVE] = 86.0


@dataclass(slots=True)
class Counted:
    """The chip-seconds that were spent on steps, from one time to another.

    `stepped` has (start, end) of every time with one step after another.
    """

    from_s: float = 0.0
    until_s: float = inf
    chip_s: float = 0.0
    stepped: list[tuple[float, float]] = field(default_factory=list)

    def step(self, start_s: float, stop_s: float, chips: float) -> None:
        """Count a part of a step on so many chips; parts come in the order of time."""
        start_s, stop_s = self._inside(start_s), self._inside(stop_s)
        if stop_s <= start_s or chips <= 0:
            return
        self.chip_s += chips * (stop_s - start_s)
        if self.stepped and start_s - self.stepped[-1][1] <= TOUCHING_S:
            start_s = self.stepped.pop()[0]
        self.stepped.append((start_s, stop_s))

    @property
    def still(self) -> list[tuple[float, float]]:
        """Every (start, end) without a step, whether the chips or the learner's wait caused it.

        Of a measurement that has no end, it is until the end of the last step.
        """
        last_s = self.stepped[-1][1] if self.stepped else self.from_s
        end_s = last_s if self.until_s == inf else self.until_s
        starts_s = [self.from_s, *(stop_s for _, stop_s in self.stepped)]
        stops_s = [*(start_s for start_s, _ in self.stepped), end_s]
        gaps = zip(starts_s, stops_s, strict=True)
        return [(start_s, stop_s) for start_s, stop_s in gaps if stop_s - start_s > TOUCHING_S]

    def _inside(self, at_s: float) -> float:
        return min(max(at_s, self.from_s), self.until_s)


class ElasticChips:
    """Chips that go on without those that failed.

    Slices that are ready come back together, at most once in a while, and stall the others once
    more. A failure within a stall joins it and does not lengthen it.
    """

    def __init__(self, chips: Chips, rng: random.Random, counted: Counted) -> None:
        self.counted = counted
        self._chips = chips
        self._rng = rng
        self._live = chips.count
        self._away: list[float] = []  # when each slice that failed is ready, in order
        self._stalled_until_s = 0.0
        self._rejoined_s = -inf
        self._fails_s = 0.0
        self._draw(0.0)

    def step(self, begin_s: float, work_s: float) -> float:
        while self._next_s <= begin_s:
            self._happen(self._next_s)
        now_s, left_s = begin_s, work_s
        while left_s > 0:
            stalled = now_s < self._stalled_until_s
            end_s = self._stalled_until_s if stalled else now_s + left_s
            event_s = self._next_s
            until_s = min(end_s, event_s)
            if not stalled:
                self.counted.step(now_s, until_s, self._live)
                left_s = 0.0 if end_s <= event_s else left_s - (until_s - now_s)
            now_s = until_s
            if event_s <= end_s:
                self._happen(event_s)
        return now_s

    @property
    def _next_s(self) -> float:
        if not self._away:
            return self._fails_s
        back_s = max(self._away[0], self._rejoined_s + self._chips.rejoin_every_s)
        return min(self._fails_s, back_s)

    def _happen(self, now_s: float) -> None:
        chips = self._chips
        if now_s == self._fails_s:
            if now_s >= self._stalled_until_s:
                self._stalled_until_s = now_s + chips.stall_s
            self._live = max(0.0, self._live - chips.slice_chips)
            self._away.append(now_s + chips.return_s)
        else:
            ready = sum(at_s <= now_s for at_s in self._away)
            del self._away[:ready]
            self._live = min(chips.count, self._live + ready * chips.slice_chips)
            self._stalled_until_s = max(self._stalled_until_s, now_s) + chips.rejoin_stall_s
            self._rejoined_s = now_s
        self._draw(now_s)

    def _draw(self, now_s: float) -> None:
        """Draw the next failure anew, for so many chips as there are: it has no memory."""
        rate = self._live / self._chips.mtbi_s
        self._fails_s = now_s + self._rng.expovariate(rate) if rate > 0 else inf


class RigidChips:
    """Chips that all start again when one of them fails; a spare takes the place of its slice."""

    def __init__(self, chips: Chips, rng: random.Random, counted: Counted) -> None:
        self.counted = counted
        self._chips = chips
        self._rng = rng

    def step(self, begin_s: float, work_s: float) -> float:
        """Take a step; if a chip fails in it, start again after its end. Returns when it is over.

        Chips that fail while the others start again are replaced with them.
        """
        end_s = begin_s + work_s
        self.counted.step(begin_s, end_s, self._chips.count)
        fails_s = begin_s + self._rng.expovariate(self._chips.count / self._chips.mtbi_s)
        if fails_s > end_s:
            return end_s
        return end_s + self._chips.restart_s


Device = ElasticChips | RigidChips
"""Hardware on which a learner steps: `step` returns when a step ends that begins, and takes so long
where nothing fails."""
