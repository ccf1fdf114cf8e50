"""What a syncer and a learner hold, by formulas that a hand can check, and what a host has."""

from pathlib import Path

import pytest

from islands.cli.dry_run import accelerated
from islands.layout.fragments import plan
from islands.layout.leaves import Fragment, Layout, Leaf, layout_of
from islands.model import memory
from islands.model.memory import ROOM, SyncerBytes, TrainerBytes, syncer_memory
from islands.protocol.errors import TaskError, TaskFailedError
from islands.protocol.settings.choices import Pattern, UpdatePrecision
from islands.protocol.settings.run import RunSettings
from islands.run.planner import estimate

F = 1 << 25
LAYOUT = plan([Leaf("w", (1_000_000, 1000))], count=4)
FULL = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nBuffers: ...")


def layout(fragments: int) -> Layout:
    leaves = [Leaf(f"layers/{index}", (F // 4,)) for index in range(fragments)]
    equal = [Fragment(index, (), F // 4) for index in range(fragments)]
    return layout_of(leaves, equal, Pattern.BALANCED, {})


def found(fragments: int, learners: int = 1, **changes: object) -> SyncerBytes:
    """With H = 16 and τ = 2."""
    settings = RunSettings(**{"interval_steps": 16, **changes})  # type: ignore[arg-type]
    return syncer_memory(layout(fragments), settings, learners)


def test_one_fragment() -> None:
    assert found(1, learners=2) == SyncerBytes(2 * F, F, 2 * F)


def test_several_fragments() -> None:
    assert found(24) == SyncerBytes((24 + 6) * F, 24 * F, 3 * F)


def test_older_versions_are_no_more_than_are_kept_of_all() -> None:
    assert found(24, interval_steps=1) == SyncerBytes(2 * 24 * F, 24 * F, 24 * F)


def test_increments_are_kept_with_what_they_left() -> None:
    sent = F // 8 + F // 4 // 256 * 2
    assert found(4, update_precision=UpdatePrecision.FP4).increments == 4 * (F + sent)


def test_a_step_takes_its_temporaries() -> None:
    guessed = TrainerBytes(parameters=3 * F, base=4 * F, moments=6 * F, gradients=3 * F)
    known = TrainerBytes(3 * F, 4 * F, 6 * F, 3 * F, temporaries=50 * F)
    assert (guessed.total, known.total) == (16 * F, 63 * F)


def test_a_host_needs_half_as_much_again() -> None:
    made = estimate(layout(4), RunSettings(interval_steps=16), learners=3)
    held = made.syncer.total + 2 * made.learner.total
    assert made.host_bytes(2) == round(ROOM * held)


@pytest.mark.parametrize("device", ["nvidia0", "accel0"])
def test_accelerators_are_seen(device: str, tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert not accelerated({}, tmp_path)
    (tmp_path / device).touch()
    assert accelerated({}, tmp_path)
    assert accelerated({"JAX_PLATFORMS": "cuda,cpu"}, tmp_path)
    assert not accelerated({"JAX_PLATFORMS": "cpu"}, tmp_path)


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (FULL, True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError("Unable to allocate 8.00 TiB for an array"), True),
        (RuntimeError("shapes differ"), False),
        (OSError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_known(error: Exception, *, lacks: bool) -> None:
    assert memory.lacks_memory(error) is lacks


def test_a_learner_is_told_what_it_holds() -> None:
    told = memory.compute_failure(FULL, LAYOUT)
    assert type(told) is TaskFailedError
    assert str(told).startswith("RuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 ")
    assert "1,000,000,000 parameters in 1 tensors" in str(told)
    assert "3.73 GiB over all devices" in str(told)
    assert "this model on the devices" in str(memory.compute_failure(MemoryError(), None))
    other = ValueError("no number")
    assert memory.compute_failure(other, LAYOUT) is other


def test_a_loop_of_ones_own_is_told_by_the_same_words() -> None:
    with (
        pytest.raises(TaskError, match="holds the published values once"),
        memory.memory_told(LAYOUT),
    ):
        raise FULL
    with pytest.raises(RuntimeError, match="shapes differ"), memory.memory_told(LAYOUT):
        raise RuntimeError("shapes differ")


def test_a_hub_that_is_too_small_says_so_before_it_is_killed() -> None:
    told = memory.hub_lacks(LAYOUT, RunSettings(fragments=4), 8 * 10**9)
    assert "but this host has 7.45 GiB" in told
    assert "3.73 GiB in float32" in told
    assert memory.hub_lacks(LAYOUT, RunSettings(fragments=4), 10**12) == ""
    assert memory.hub_lacks(LAYOUT, RunSettings(fragments=4), None) == ""


@pytest.mark.parametrize(
    ("limit", "found"), [("max", 2048), ("1000", 1000), ("9223372036854771712", 2048), (None, 2048)]
)
@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/\n", "memory.max"),
        ("0::/a/b/c\n", "a/memory.max"),
        ("4:cpu:/x\n9:memory:/a/b\n", "memory/a/b/memory.limit_in_bytes"),
        ("9:cpuset,memory:/a/b\n0::/\n", "memory/memory.limit_in_bytes"),
        (None, "memory.max"),
    ],
)
def test_the_smallest_of_machine_and_groups_counts(
    limit: str | None, found: int, own: str | None, file: str, tmp_path: Path
) -> None:
    machine, groups, told = tmp_path / "meminfo", tmp_path / "groups", tmp_path / "own"
    machine.write_text("MemFree: 1 kB\nMemTotal:       2 kB\n")
    (groups / file).parent.mkdir(parents=True)
    if own is not None:
        told.write_text(own)
    if limit is not None:
        (groups / file).write_text(limit + "\n")
    assert memory.host_memory_bytes(machine, told, groups) == found


def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert memory.host_memory_bytes(none, none, none) is None
