"""What a syncer and a learner hold, by formulas that a hand can check."""

from pathlib import Path

import pytest

from islands.cli.dry_run import accelerated
from islands.layout.leaves import Fragment, Layout, Leaf, layout_of
from islands.model.memory import ROOM, SyncerBytes, TrainerBytes, syncer_memory
from islands.protocol.settings.choices import Pattern, UpdatePrecision
from islands.protocol.settings.run import RunSettings
from islands.run.planner import estimate

F = 1 << 25


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
