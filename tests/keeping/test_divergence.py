"""When a run has diverged: tables of losses, at both ends of the ranges, without a clock."""

import random
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from islands.cli.divergence import Guard, going_back
from islands.cli.keeping import resumed
from islands.keeping.divergence import HIGH_LEAST, LEAST, UNKNOWN, Divergence, DivergenceWatch
from islands.keeping.finding import find, newest_until
from islands.keeping.restoring import go_back
from islands.protocol.errors import OF_NO_USE, UserError
from islands.protocol.tape.member_entries import Paused
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.run_claim import claim_folder
from islands.settings.groups import (
    CheckpointOptions,
    ConnectOptions,
    ListenOptions,
    OnDivergence,
)
from islands.settings.run_spec import Diverged, Way, read, write
from tests.keeping.test_checkpoints import PLAN, SPEC, trained, values_in

WELL = 100


def looked(
    losses: list[float],
    *,
    lasting_s: float = 60.0,
    every_s: float = 1.0,
    watch: DivergenceWatch | None = None,
) -> tuple[int, Divergence] | None:
    """Look at these losses in turn; the look that told of a divergence, counted from 0, and it."""
    watch = watch or DivergenceWatch(lasting_s, WELL)
    for number, loss in enumerate(losses):
        found = watch.look(number * every_s, loss, number)
        if found is not None:
            return number, found
    return None


def falling(count: int, least: float = 2.0, first: float = 8.0) -> list[float]:
    return [least + (first - least) * 0.9**number for number in range(count)]


@pytest.mark.parametrize(
    ("lasting_s", "every_s", "looks"),
    [
        (60.0, 1.0, 61),
        (1e-6, 1e-6, HIGH_LEAST),  # steps of a microsecond
        (1e-6, 300.0, HIGH_LEAST),
        (60.0, 300.0, HIGH_LEAST),  # steps of five minutes: the time alone would be one look
        (1e6, 300.0, 3335),
        (3.0, 0.001, 3001),
    ],
)
@pytest.mark.parametrize("high", [7.0, 1e30, inf, nan])
def test_a_loss_that_stays_too_high_is_a_divergence(
    lasting_s: float, every_s: float, looks: int, high: float
) -> None:
    """The median is 2, so 7 is more than three times as much."""
    losses = [*falling(300), *[high] * (looks + 5)]
    told = looked(losses, lasting_s=lasting_s, every_s=every_s)
    assert told is not None
    assert told[0] in (300 + looks - 1, 300 + looks)  # as seconds are rounded
    assert told[1].sound == 297, "two looks before the last calm one"


def noise(seed: int, mean: float, deviation: float, smoothing: float) -> Iterator[float]:
    """Losses that are smoothed as those of learners are; the least number of learners is one."""
    draw = random.Random(seed)
    value = draw.gauss(mean, deviation)
    while True:
        yield value
        value += smoothing * (draw.gauss(mean, deviation) - value)


@pytest.mark.parametrize("every_s", [1.0, 300.0])
@pytest.mark.parametrize(
    ("mean", "deviation"), [(2.0, 0.5), (2.0, 4.0), (0.0, 1.0), (-20.0, 5.0), (1e-7, 3e-7)]
)
def test_noise_is_no_divergence(mean: float, deviation: float, every_s: float, seed: int) -> None:
    drawn = noise(seed, mean, deviation, 0.05)
    losses = [next(drawn) for _ in range(1500)]
    assert looked(losses, every_s=every_s) is None


@pytest.mark.parametrize(
    ("what", "losses"),
    [
        ("the first steps of a run", [5.0] * (LEAST - 1) + [500.0] * 3 + falling(500)),
        ("a run that learns", falling(2000, 0.0, 10.0)),
        ("a loss next to nothing", [*falling(500, 1e-7), *[1e-5] * 500]),
        ("a likelihood of a density", [*falling(500, -20.0, 5.0), *[4.0] * 500]),
        ("data that are harder", [*falling(500, 2.0), *[5.5] * 500]),
        ("a spike shorter than the time", [*falling(300), *[90.0] * 59, *falling(300, 2.0, 3.0)]),
        ("one after another", ([2.0] * 20 + [90.0] * 50) * 10),
        ("a loss that is nothing at all", [*falling(50), *[0.0] * 300, *[0.5] * 300]),
    ],
)
def test_what_happens_to_sound_runs_is_no_divergence(what: str, losses: list[float]) -> None:
    assert looked(losses) is None, what


@pytest.mark.parametrize("before", [1, 5, LEAST - 1, LEAST, 10 * LEAST])
@pytest.mark.parametrize("last", [14.0, nan])
def test_a_run_may_diverge_soon_after_it_has_begun(before: int, last: float) -> None:
    told = looked([*falling(before, 0.7, 1.4), *[14.0] * 40, *[last] * 60])
    assert told is not None
    assert told[0] == before + 60
    assert told[1].sound == max(0, before - 3)


def test_what_was_before_the_loss_rose_is_sound_though_nobody_noticed() -> None:
    """It rises for a while until it is too high; what is sound ends where that began."""
    rising = [2.0 * 1.02**number for number in range(60)]
    told = looked([*falling(300), *rising, *[50.0] * 80])
    assert told is not None
    assert told[1].sound < 300 + 25, "1.02²⁵ is 1.6, and is calm no more"
    assert told[0] > 300 + 60 + 60 - 10


def test_a_run_that_goes_on_knows_what_was_usual() -> None:
    again = DivergenceWatch(60.0, WELL)
    again.learn([*falling(200), *[90.0] * 100])
    assert again.look(0.0, 2.0, 7) is None
    told = looked([90.0] * 70, watch=again)
    assert told is not None
    assert told[0] == 60
    assert told[1].sound == 7
    worse = DivergenceWatch(60.0, WELL)
    worse.learn(falling(200))
    told = looked([90.0] * 70, watch=worse)
    assert told is not None
    assert told[1].sound == UNKNOWN, "it was so before this start"
    assert worse.relapse("a", 2, {"a": 1}, "a") is not None
    unknown = DivergenceWatch(60.0, WELL)
    assert looked([90.0] * 70, watch=unknown) is None, "it may be the loss of any run"


@pytest.mark.parametrize(
    ("lasting_s", "stepped", "soon", "late"),
    [
        *((60.0, "abc", True, True), (60.0, "ab", False, True), (60.0, "a", False, False)),
        *((1e-6, "ab", True, True), (60.0, "", False, False), (1e6, "ab", False, False)),
    ],
)
def test_a_look_is_due_once_each_learner_has_stepped_and_later_once_most_have(
    lasting_s: float, stepped: str, *, soon: bool, late: bool
) -> None:
    watch = DivergenceWatch(lasting_s, WELL)
    assert watch.due(0.0, {"a": 5, "b": 5, "c": 5})
    assert not watch.due(1e9, {"a": 5, "b": 5, "c": 5}), "nobody has stepped"
    steps = {name: 6 if name in stepped else 5 for name in "abc"}
    assert watch.due(60.0 / HIGH_LEAST - 0.1, steps) is soon
    if not soon:
        assert watch.due(60.0 / HIGH_LEAST, steps) is late
    assert not watch.due(1e9, {}), "nobody is here"


# --- learners that begin again ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "relapses", "diverged"),
    [
        ("a", "a", True),
        ("ab", "a", False),
        ("ab", "ab", True),
        ("abc", "ab", True),
        ("abcd", "ab", False),
        ("", "ab", True),  # those that begin again are not here just now
    ],
)
def test_most_learners_must_begin_again_and_again(
    here: str, relapses: str, *, diverged: bool
) -> None:
    steps = dict.fromkeys("abcd", 500)
    watch = DivergenceWatch(60.0, WELL)
    watch.look(0.0, 2.0, 3)
    told = [watch.relapse(name, times, steps, here) for times in (1, 2) for name in relapses]
    assert told[: len(relapses)] == [None] * len(relapses), "the first time may be a device"
    assert (told[-1] is not None) is diverged
    assert told[-1] is None or told[-1].sound == 3


def test_who_is_well_again_or_gone_counts_no_more() -> None:
    watch = DivergenceWatch(60.0, WELL)
    watch.look(0.0, 2.0, 3)
    before, well = {"a": 500, "b": 500}, {"a": 500 + WELL, "b": 500}
    assert watch.relapse("a", 2, before, "ab") is None
    assert watch.relapse("b", 2, well, "ab") is None
    assert watch.relapse("a", 2, well, "ab") is not None
    watch.forget("a")
    assert watch.relapse("b", 3, well, "ab") is None


def test_a_run_that_was_never_sound_is_left_to_the_syncer() -> None:
    watch = DivergenceWatch(60.0, WELL)
    assert looked([nan] * 500, watch=watch) is None
    assert watch.relapse("a", 2, {}, "a") is None


# --- going back -------------------------------------------------------------------------------


def test_the_right_checkpoint_is_the_newest_from_before(tmp_path: Path) -> None:
    store = trained(tmp_path).store
    chosen = {until: newest_until(store, until) for until in (3, 4, 5, 8, 10**9)}
    merges = {until: found and found.manifest.merges for until, found in chosen.items()}
    assert merges == {3: None, 4: 4, 5: 4, 8: 8, 10**9: 8}


def diverged_run(folder: Path, mark: Diverged) -> None:
    trained(folder)
    told = read(folder)
    assert told is not None
    write(folder, told[0], replace(told[1], diverged=mark))


def back(folder: Path, wish: str | None, what: OnDivergence) -> tuple[list[float], Diverged | None]:
    """Start in a folder; the values in its journal then, and what the plan says of divergences."""
    resumed(wish, folder, CheckpointOptions(on_divergence=what), SPEC, None, "")
    told = read(folder)
    assert told is not None
    return sorted(value for value, _ in values_in(folder)), told[1].diverged


def test_a_hub_that_has_decided_to_go_back_does_so_once(tmp_path: Path) -> None:
    mark = Diverged(8, "1-4", Way.GOES_BACK)
    diverged_run(tmp_path, mark)
    assert back(tmp_path, None, OnDivergence.PAUSE) == ([7, 8], mark), "it is to do so no more"
    for wish in (None, "auto", None):
        assert back(tmp_path, wish, OnDivergence.RESUME) == (
            [3, 4],
            Diverged(8, "1-4", Way.WENT_BACK),
        )


def test_killed_before_the_run_has_gone_back_it_goes_back(tmp_path: Path) -> None:
    """The plan of a run that is going back is written before its journal."""
    mark = Diverged(8, "1-4", Way.GOES_BACK)
    diverged_run(tmp_path, mark)
    found = find(mark.checkpoint, tmp_path)
    again = replace(PLAN, diverged=mark)
    go_back(found, tmp_path, SPEC, lambda _, __: again)  # killed once it is done
    assert back(tmp_path, None, OnDivergence.RESUME) == ([3, 4], Diverged(8, "1-4", Way.WENT_BACK))
    diverged_run(tmp_path / "2", Diverged(8, "1-4", Way.GOES_BACK))
    told = read(tmp_path / "2")
    assert told is not None
    write(tmp_path / "2", told[0], replace(told[1], begun="again"))  # killed before the journal
    assert back(tmp_path / "2", None, OnDivergence.RESUME) == (
        [3, 4],
        Diverged(8, "1-4", Way.WENT_BACK),
    )


def test_somebody_goes_back_further_than_the_hub_would(tmp_path: Path) -> None:
    diverged_run(tmp_path, Diverged(8, "1-6", Way.GOES_BACK))
    assert back(tmp_path, "4", OnDivergence.RESUME) == ([3, 4], Diverged(8, "1-4", Way.WENT_BACK))
    with pytest.raises(UserError, match="no whole checkpoint 7"):
        back(tmp_path, "7", OnDivergence.RESUME)


@pytest.mark.parametrize(
    ("what", "before", "sound", "way", "told"),
    [
        (OnDivergence.PAUSE, None, 5, Way.WAITS, "the run is paused; once this hub has ended"),
        (OnDivergence.RESUME, None, 5, Way.GOES_BACK, "it goes back to "),
        (OnDivergence.RESUME, 4, 5, Way.GOES_BACK, "it goes back to "),
        (OnDivergence.RESUME, 5, 5, Way.WAITS, "the run ends; once this hub has ended"),
        (OnDivergence.PAUSE, 5, 5, Way.WAITS, "the run is paused; once this hub has ended"),
        (
            OnDivergence.RESUME,
            None,
            3,
            Way.WAITS,
            "the run is paused, for no checkpoint is from before",
        ),
        (OnDivergence.RESUME, 5, 3, Way.WAITS, "the run ends, for no checkpoint is from before"),
    ],
)
async def test_what_a_hub_does(
    tmp_path: Path, what: OnDivergence, before: int | None, sound: int, way: Way, told: str
) -> None:
    """It keeps the checkpoints of 4, 6 and 8 merges; `before` is where it diverged last."""
    trained(tmp_path)
    settings = CoordinatorSettings(
        *(tmp_path, SPEC, ListenOptions("127.0.0.1:0"), ConnectOptions()),
        saving=CheckpointOptions(on_divergence=what),
        syncer_here=True,
    )
    hub = Coordinator(settings, claim_folder(tmp_path, SPEC, None), None)
    await hub.open()
    if before is not None:
        await hub.keep_plan(replace(hub.plan, diverged=Diverged(before, "", Way.WENT_BACK)))
    hub.folder.write(0.0, "syncer", Paused())
    guard = Guard(hub, ("run.yaml",))
    await guard.act(Divergence("its loss is 9", sound))
    checkpoint = "1-4" if sound > 3 else ""
    assert hub.plan.diverged == Diverged(0, checkpoint, way)
    assert read(tmp_path) == (SPEC, hub.plan)
    assert guard.goes_back is (way is Way.GOES_BACK)
    assert f"the run has diverged: its loss is 9; {told}" in hub.folder.figures.warning
    assert (hub.cluster.end.exit_code == OF_NO_USE) is ("ends" in told)
    await hub.close()


@pytest.mark.parametrize(
    "words",
    [
        ("run.yaml", "--learners", "2"),
        ("run.yaml", "--resume", "7", "--learners", "2", "--folder", "elsewhere"),
        ("run.yaml", "--folder=elsewhere", "--learners", "2", "--resume=1-7"),
    ],
)
def test_the_command_has_its_words_once(words: tuple[str, ...]) -> None:
    told = going_back(words, Path("runs/my run"), "1-4")
    assert told == ("run.yaml --learners 2 --folder 'runs/my run' --resume 1-4")
