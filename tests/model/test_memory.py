"""What each process takes of its host's memory, by formulas that a hand can check."""

from dataclasses import replace
from pathlib import Path

import pytest

from islands.cli.dry_run import accelerated
from islands.layout.leaves import Fragment, Layout, Leaf, layout_of
from islands.model.memory import (
    CODEC_PROGRAM,
    HUB_PROGRAM,
    JAX_AT_A_LEARNER,
    JAX_AT_THE_HUB,
    LEARNER_PROGRAM,
    SYNCER_PROGRAM,
    Processes,
    TrainerMemory,
    processes,
)
from islands.protocol.settings.choices import Adoption, Pattern, Precision, UpdatePrecision
from islands.protocol.settings.run import RunSettings

F = 1 << 25
TRAINER = TrainerMemory(parameters=3 * F, base=4 * F, moments=6 * F, gradients=3 * F)


def layout(fragments: int) -> Layout:
    """Equal fragments of F bytes."""
    leaves = [Leaf(f"layers/{index}", (F // 4,)) for index in range(fragments)]
    equal = [Fragment(index, (), F // 4) for index in range(fragments)]
    return layout_of(leaves, equal, Pattern.BALANCED, {})


def found(fragments: int, learners: int = 1, **changes: object) -> Processes:
    """With H = 16 and τ = 2."""
    settings = RunSettings(**{"interval_steps": 16, **changes})  # type: ignore[arg-type]
    return processes(layout(fragments), settings, TRAINER, learners=learners)


def test_one_fragment() -> None:
    """The value and an older one, the state, new ones of both, a contribution of each learner."""
    made = found(1, learners=2)
    assert made.syncer - SYNCER_PROGRAM == (2 + 1 + 2 + 2) * F
    assert made.learner - LEARNER_PROGRAM == TRAINER.total + 3.5 * F
    assert made.hub - HUB_PROGRAM == (2 + 1 + 1) * F
    assert made.total == made.hub + made.syncer + 2 * made.learner


def test_several_fragments() -> None:
    """What is under way is a few fragments, what is kept is all of them."""
    made = found(24)
    assert made.syncer - SYNCER_PROGRAM == (24 + 3 + 3 + 24 + 2 + 3) * F
    assert made.learner - LEARNER_PROGRAM == TRAINER.total + (2.5 + 5 + 1) * F
    assert found(4).learner - LEARNER_PROGRAM == TRAINER.total + (2.5 + 3 + 1) * F
    assert made.hub - HUB_PROGRAM == (2 * 24 + 16 + 1) * F  # 16 buffers of F are kept
    assert found(2).hub - HUB_PROGRAM == (2 * 2 + 2 + 1) * F


def test_older_versions_are_no_more_than_are_kept_of_all() -> None:
    """With a short interval nearly every fragment has a version that not all have adopted."""
    made = found(24, interval_steps=1)
    assert made.syncer - SYNCER_PROGRAM == (2 * 24 + 24 + 2 + 24) * F
    assert found(24, staleness_max=0).syncer == found(24, staleness_max=64).syncer


def test_half_precision_halves_what_a_learner_sends() -> None:
    """The syncer widens it, and has both."""
    made, half = found(2), found(2, precision=Precision.BFLOAT16)
    assert made.learner - half.learner == 3 * F // 2
    assert half.syncer - made.syncer == F // 2


def test_a_codec_on_the_host_takes_room_at_the_learner() -> None:
    """Its program, one fragment encoded at a time, and what was lost until its fate is known."""
    made, fp4 = found(4), found(4, precision=Precision.FP4)
    carried = found(4, precision=Precision.FP4, adoption=Adoption.DELAY_CORRECTED)
    sent = F // 8 + F // 4 // 256 * 2
    assert carried.learner - made.learner == CODEC_PROGRAM + 2 * F + 2 * sent
    assert fp4.learner - carried.learner == 4 * F + F
    assert fp4.syncer == made.syncer


def test_increments_take_room_at_both_ends() -> None:
    """What was left, and one of each; a copy of what was published, and the program."""
    made, fp4 = found(4), found(4, update_precision=UpdatePrecision.FP4)
    both = found(4, update_precision=UpdatePrecision.FP4, precision=Precision.FP4)
    coded = found(4, precision=Precision.FP4)
    sent = F // 8 + F // 4 // 256 * 2
    assert fp4.syncer - made.syncer == 4 * F + 4 * sent + 2 * F
    assert fp4.learner - made.learner == 4 * F + 2 * F + CODEC_PROGRAM
    assert both.learner - coded.learner == 4 * F + 2 * F


def test_a_device_of_its_own_takes_the_model_off_the_host() -> None:
    """And JAX takes its part, also where it evaluates."""
    settings = RunSettings(interval_steps=16)
    away = replace(TRAINER, on_host=False, jax=True)
    made = processes(layout(4), settings, away, learners=1)
    assert found(4).learner - made.learner == TRAINER.total - JAX_AT_A_LEARNER
    assert made.hub - found(4).hub == JAX_AT_THE_HUB + 7 * 4 * F
    on_cpu = processes(layout(4), settings, replace(away, on_host=True), learners=1)
    assert on_cpu.learner - made.learner == TRAINER.total + 4 * 4 * F


def test_small_arrays_leave_gaps_in_the_heap() -> None:
    """Below the size from which on the system gives each array its own pages."""
    settings = RunSettings(interval_steps=16)
    leaves, equal = [Leaf("w", (F // 8,))], [Fragment(0, (), F // 8)]
    small = processes(layout_of(leaves, equal, Pattern.BALANCED, {}), settings, TRAINER, learners=2)
    assert small.syncer - SYNCER_PROGRAM == round(1.15 * 7 * F / 2)


@pytest.mark.parametrize("device", ["nvidia0", "accel0"])
def test_accelerators_are_seen(device: str, tmp_path: Path) -> None:
    """By what the system shows, unless JAX is told to do without."""
    (tmp_path / "nvidiactl").touch()
    assert not accelerated({}, tmp_path)
    (tmp_path / device).touch()
    assert accelerated({}, tmp_path)
    assert accelerated({"JAX_PLATFORMS": "cuda,cpu"}, tmp_path)
    assert not accelerated({"JAX_PLATFORMS": "cpu"}, tmp_path)


def test_what_xla_says_of_a_step_takes_the_place_of_gradients() -> None:
    """On a host's own processor; activations may be many times the model."""
    settings = RunSettings(interval_steps=16)
    guessed = replace(TRAINER, jax=True)
    known = replace(guessed, temporaries=50 * F, evaluation=7 * F)
    before, after = (processes(layout(4), settings, t, learners=1) for t in (guessed, known))
    assert after.learner - before.learner == (50 - 3) * F - 4 * F
    assert after.hub - before.hub == 7 * F
    few = replace(guessed, temporaries=F)
    assert processes(layout(4), settings, few, learners=1).learner == before.learner - 4 * F
