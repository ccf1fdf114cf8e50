"""The pattern of fragments is a setting: from the run's file to the plan and to every trainer."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree

from islands.cli.__main__ import main
from islands.cli.dry_run import examine
from islands.cli.parsing import Common
from islands.lab.toys.toy_workload import Sleeping
from islands.layout.leaves import Layout
from islands.model.jax_workload import JaxWorkload
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import MergeRule, Pattern
from islands.protocol.settings.run import RunSettings
from islands.settings.groups import ListenOptions, RunFile
from islands.settings.host import RunOptions
from islands.settings.run_spec import RunPlan, RunSpec
from islands.tasks.task import TaskState
from tests.broken_tasks import Sound

LAYERS, WIDTH = 4, 128  # 64 KiB a layer, so that each may be a fragment


class Numbered(Sound):
    """Four layers with a number each, beside the weights that the loss needs."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        layers = [jnp.ones((WIDTH, WIDTH)) * number for number in range(LAYERS)]
        return TaskState({"layers": layers, "w": jax.random.normal(key, (4,))}, {"count": 0})

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        error = batch["x"] @ params["w"] - batch["y"] + sum(x.sum() for x in params["layers"])
        return jnp.mean(jnp.square(error)), state


class Scanned(Numbered):
    """The same layers stacked along axis 0, as a scan over layers wants them."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        start = super().init(key)
        stacked = jnp.stack(start.params["layers"])
        return TaskState({"layers": stacked, "w": start.params["w"]}, start.state)

    def stack(self, path: str) -> int:
        return LAYERS if path == "layers" else 1


def planned(task: Sound, pattern: Pattern, fragments: int = 2) -> Layout:
    settings = RunSettings(pattern=pattern, fragments=fragments)
    return JaxWorkload(task).plan(settings).layout


def layers_of(layout: Layout) -> list[list[int]]:
    """The layers in each fragment, by number or by place in the stack."""
    return [
        [
            piece.row_start // WIDTH if piece.path == "layers" else int(piece.path.split("/")[1])
            for piece in fragment.pieces
            if piece.path.startswith("layers")
        ]
        for fragment in layout.fragments
    ]


@pytest.mark.parametrize("task", [Numbered(), Scanned()], ids=["numbered", "stacked"])
def test_the_setting_decides_which_layers_share_a_fragment(task: Sound) -> None:
    assert layers_of(planned(task, Pattern.LAYERS)) == [[0, 1], [2, 3]]
    assert layers_of(planned(task, Pattern.STRIDED)) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("pattern", Pattern)
def test_each_entry_of_a_stack_is_a_merge_unit_of_its_own(pattern: Pattern) -> None:
    layout = planned(Scanned(), pattern)
    rule = MergeRule.RADIAL_DIRECTIONAL
    sizes = [u.size for f in layout.fragments for u in f.units(rule) if u.rule is rule]
    assert sizes == [WIDTH * WIDTH] * LAYERS


def test_patterns_have_fingerprints_of_their_own() -> None:
    layouts = {pattern: planned(Numbered(), pattern) for pattern in Pattern}
    assert len({layout.fingerprint for layout in layouts.values()}) == len(Pattern)
    told = layouts[Pattern.LAYERS].first_difference(layouts[Pattern.STRIDED])
    assert told == "here pattern = layers, 2 fragments; there pattern = strided, 2 fragments"
    for layout in layouts.values():
        assert RunPlan.decode(RunPlan(layout, 4).encode()).layout == layout


def test_another_pattern_is_another_run() -> None:
    """A restarted run cannot change it: the fragments would be others."""
    spec = RunSpec(RunSettings())
    assert RunSpec(RunSettings(pattern=Pattern.LAYERS)).changed_from(spec) == (
        "run.pattern = balanced, not layers"
    )


def test_a_model_without_layers_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "pattern is layers; it needs numbered or stacked layers"
    settings = RunSettings(pattern=Pattern.LAYERS)
    for workload in (JaxWorkload(Sound()), Sleeping()):
        with pytest.raises(SettingsError, match=r"pattern is layers; .* use balanced"):
            workload.plan(settings)
    file = RunFile(task="tests.broken_tasks:Sound", run=settings)
    options = RunOptions(file, ListenOptions(listen="127.0.0.1:0"), folder=tmp_path)
    assert [sentence for sentence in examine(options, Common()).refused if told in sentence]
    assert main(["check", "tests.broken_tasks:Sound", "--run.pattern", "layers"]) == 2
    out = capsys.readouterr()
    assert told in out.out + out.err


def test_an_outer_optimizer_that_optax_lacks_is_refused_before_a_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--run.outer.optimizer", "adm"]
    assert main(["check", "tests.broken_tasks:Sound", *given]) == 2
    run = ["run", "--task", "tests.broken_tasks:Sound", "--folder", str(tmp_path / "a"), *given]
    assert main(run) == 2
    assert main([*run, "--dry-run", "--listen", "127.0.0.1:0"]) != 0
    told = capsys.readouterr()
    assert (told.out + told.err).count("outer.optimizer is 'adm'") == 3
