"""When the run hears that the syncer's own workers are what rounds wait for."""

from islands.protocol.syncer.timeouts import WARN_EVERY_S
from islands.protocol.syncer.watches import (
    FULL_SHARE,
    INSPECTING,
    MERGING,
    WINDOW_S,
    WRITING,
    Busy,
    LoadWatch,
    Overload,
)


class Bench:
    """A watch that is asked every second."""

    def __init__(self, places: int = 1) -> None:
        self.watch = LoadWatch()
        self.watch.merged()
        self.places = places
        self.now_s = 0.0
        self.rounds = 0
        self.busy_s = {INSPECTING: 0.0, MERGING: 0.0, WRITING: 0.0}

    def live(
        self, for_s: float, shares: dict[str, float], left_out: int = 0, rounds: int = 1
    ) -> list[tuple[float, Overload]]:
        """So long with these busy shares, and rounds each second of which the last lacks some."""
        told: list[tuple[float, Overload]] = []
        for _ in range(round(for_s)):
            self.now_s += 1.0
            for _ in range(rounds):
                self.rounds += 1
                self.watch.opened(self.rounds, held_up=0)
            self.watch.lacks(self.rounds, left_out)
            for name, share in shares.items():
                places = self.places if name == INSPECTING else 1
                self.busy_s[name] += share * places
            busy = {
                name: Busy(busy_s, self.places if name == INSPECTING else 1, 7)
                for name, busy_s in self.busy_s.items()
            }
            found = self.watch.look(busy, self.now_s)
            if found is not None:
                told.append((self.now_s, found))
        return told


def test_a_run_that_keeps_up_hears_nothing() -> None:
    """Neither of workers that are nearly full, nor of a contribution that came a little late."""
    bench = Bench(places=4)
    assert bench.live(1000.0, dict.fromkeys(bench.busy_s, FULL_SHARE - 0.01)) == []
    assert bench.live(1000.0, {INSPECTING: 0.3}, left_out=1) == []
    assert bench.live(1000.0, {INSPECTING: 0.8}, left_out=1, rounds=2) == []


def test_a_worker_that_is_full_is_told_with_what_it_costs() -> None:
    """When it becomes full, again every minute, and once when it keeps up again."""
    bench = Bench(places=4)
    assert bench.live(WINDOW_S, dict.fromkeys(bench.busy_s, 0.1)) == []
    told = bench.live(100.0, {INSPECTING: 0.97, MERGING: 0.2, WRITING: 0.4}, left_out=3)
    assert [at_s for at_s, _ in told] == [21.0, 21.0 + WARN_EVERY_S]
    first = told[0][1]
    assert (first.worker, round(first.share, 2), first.waiting) == (INSPECTING, 0.97, 7)
    assert first.told.startswith("the syncer's worker for inspecting is 97% busy, and ")
    assert (
        f"{first.rounds} rounds lacked {first.left_out} contributions because of it" in first.told
    )
    assert told[1][1].left_out == 3 * WARN_EVERY_S
    (over,) = bench.live(100.0, dict.fromkeys(bench.busy_s, 0.1))
    assert (over[1].worker, over[1].told) == ("", "the syncer keeps up again")


def test_rounds_that_lack_contributions_speak_for_half_a_load() -> None:
    """Contributions come in bursts, and a worker may be full when it matters and idle between."""
    bench = Bench()
    told = bench.live(30.0, {INSPECTING: 0.6}, left_out=1)
    assert [overload.worker for _, overload in told] == [INSPECTING]


def test_what_a_run_is_not_told_takes_no_memory() -> None:
    """Rounds that lacked something now and then, for as long as no worker is full, are counted."""
    bench = Bench(places=4)
    bench.live(100.0, {INSPECTING: 0.3}, left_out=1)
    sizes = len(repr(bench.watch))
    assert bench.live(3000.0, {INSPECTING: 0.3}, left_out=1) == []
    assert len(repr(bench.watch)) < 1.5 * sizes


def test_a_full_journal_or_merge_is_named() -> None:
    """Nothing is left out then; what suffers is when versions are published."""
    for name in (MERGING, WRITING):
        ((_, overload),) = Bench().live(30.0, {INSPECTING: 0.2, name: 1.0})
        assert overload.worker == name
        assert "versions are published late" in overload.told


def test_no_worker_is_full_before_the_first_merge_is_complete() -> None:
    """Until then it compiles its kernels, or reads the journal: nobody waits for it longer."""
    bench = Bench()
    bench.watch = LoadWatch()
    assert bench.live(60.0, {MERGING: 1.0}, left_out=1) == []
    bench.watch.merged()
    assert bench.live(2 * WINDOW_S, {MERGING: 0.2}) == [], "and none of it counts afterwards"
    assert [found.worker for _, found in bench.live(2 * WINDOW_S, {MERGING: 1.0})] == [MERGING]
