"""Which tensors of a user's model are trained, and which leaf of theirs is which of the run's."""

import jax
import jax.numpy as jnp
import msgspec
import pytest

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf, Role
from islands.layout.loop_layout import SHARDS, LoopLayout, decode_layout, encode_layout
from islands.loops.layouts import layout_of
from islands.loops.own_model import leaf_indices
from islands.model.interfaces import LearnerDevices
from islands.model.workload import OwnLoop
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunPlan


def tree() -> dict[str, object]:
    """Parameters with a stack of layers, an embedding and a frozen leaf."""
    return {
        "embedding": jnp.zeros((10, 4)),
        "layers": {"kernel": jnp.zeros((3, 4, 4), jnp.bfloat16)},
        "base": jnp.zeros(7),
    }


LEAVES = (
    Leaf("embedding", (10, 4), "float32", Role.EMBEDDING),
    Leaf("layers/kernel", (3, 4, 4), "bfloat16", Role.MATRIX, 3),
)


def test_what_is_trained_is_told() -> None:
    told = layout_of(
        tree(),
        trainable=lambda path: path != "base",
        stacked=lambda path: path.startswith("layers"),
    )
    assert told == LoopLayout(LEAVES)
    assert decode_layout(encode_layout(told)) == told


def test_shapes_are_enough() -> None:
    shape = (1 << 20, 1 << 20)
    large = jax.eval_shape(lambda: {"w": jnp.zeros(shape)})
    assert layout_of(large).leaves[0].shape == shape


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"n": jnp.zeros(3, jnp.int32)}, "n is int32: only floating leaves are trained"),
        ({}, "nothing is trained"),
        ({"name": "ana"}, "name is a str, and no array"),
    ],
)
def test_what_cannot_be_trained_is_refused(given: object, sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence):
        layout_of(given)


def test_a_hub_plans_by_what_it_is_told() -> None:
    workload = OwnLoop(LoopLayout(LEAVES))
    made = workload.plan(RunSettings(fragments=2, piece_bytes_min=4))
    assert [leaf.path for leaf in made.layout.leaves] == ["embedding", "layers/kernel"]
    assert len(made.layout.fragments) == 2
    assert (made.shards, made.records) == (SHARDS, 0)
    with pytest.raises(SettingsError, match="merge_moments"):
        workload.plan(RunSettings(merge_moments=True))
    with pytest.raises(TaskError, match=r"islands\.join"):
        workload.trainer(RunSettings(), LearnerDevices("ana"))


def test_a_layout_tells_how_records_are_leased() -> None:
    told = layout_of({"a": jnp.zeros(4)}, records=1000, shards=10)
    made = OwnLoop(told).plan(RunSettings(fragments=1))
    assert (made.shards, made.records) == (10, 1000)
    assert RunPlan.decode(made.encode()) == made
    for records, shards in ((-1, 1), (0, 0), (5, 6)):
        with pytest.raises(SettingsError, match=r"(records|shards) is .*; it must be"):
            layout_of({"a": jnp.zeros(4)}, records=records, shards=shards)
    with pytest.raises((SettingsError, msgspec.ValidationError), match="shards is 64; it must be"):
        decode_layout(b'{"leaves": [], "records": 3, "shards": 64}')


def test_leaves_are_found_by_path() -> None:
    layout = plan(LEAVES, count=1)
    paths = ["layers/w", "step", "embedding"]
    shapes = [(3, 4, 4), (), (10, 4)]
    rename = {"layers/w": "layers/kernel"}
    dtypes = ["bfloat16", "int32", "float32"]
    found = leaf_indices(layout, paths, shapes, dtypes, rename, lambda path: path != "step")
    assert found == [2, 0]


@pytest.mark.parametrize(
    ("paths", "shapes", "sentence"),
    [
        (["embedding"], [(10, 4)], "trains layers/kernel, which these parameters do not have"),
        (["embedding", "layers/kernel"], [(4, 10), (3, 4, 4)], r"shape \(4, 10\) here"),
        (
            ["embedding", "layers/kernel", "more"],
            [(10, 4), (3, 4, 4), (1,)],
            "the run does not train more; trainable=",
        ),
    ],
)
def test_other_leaves_are_refused(
    paths: list[str], shapes: list[tuple[int, ...]], sentence: str
) -> None:
    dtypes = ["float32", "bfloat16", "float32"][: len(paths)]
    with pytest.raises(TaskError, match=sentence):
        leaf_indices(plan(LEAVES, count=1), paths, shapes, dtypes, {}, lambda _: True)


@pytest.mark.parametrize(("place", "here"), [(0, "bfloat16"), (1, "float32")])
def test_leaves_of_another_dtype_are_refused(place: int, here: str) -> None:
    leaf = LEAVES[place]
    dtypes = [each.dtype for each in LEAVES]
    dtypes[place] = here
    paths, shapes = [each.path for each in LEAVES], [each.shape for each in LEAVES]
    with pytest.raises(TaskError, match=f"{leaf.path} is {here} here and {leaf.dtype} in the run"):
        leaf_indices(plan(LEAVES, count=1), paths, shapes, dtypes, {}, lambda _: True)
