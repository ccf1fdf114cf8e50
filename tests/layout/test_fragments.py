"""Layouts: how leaves become fragments, units and a fingerprint (protocol §4)."""

from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.layout.fragments import plan
from islands.layout.leaves import Fragment, Layout, Leaf, Role, default_role
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.settings.choices import Pattern
from tests.numerics.oracle import AVERAGE, RDA

KIB = 1024 // 4  # elements in one KiB of float32


def one_row(path: str, kib: int) -> Leaf:
    """A leaf that cannot be cut: one row of so many KiB."""
    return Leaf(path, (1, kib * KIB))


def elements(layout: Layout) -> Counter[tuple[int, int]]:
    """How often each element (leaf, index) occurs among all pieces."""
    return Counter(
        (piece.leaf, index)
        for fragment in layout.fragments
        for piece in fragment.pieces
        for index in range(piece.start, piece.stop)
    )


@st.composite
def some_leaves(draw: st.DrawFn) -> list[Leaf]:
    """Leaves of odd shapes, some stacked, at least one with elements."""
    leaves = [Leaf("layers/0/first", (draw(st.integers(1, 9)),))]
    for index in range(draw(st.integers(0, 6))):
        shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
        axes = draw(st.integers(0, len(shape)))
        stack = int(np.prod(shape[:axes], dtype=int))
        role = draw(st.sampled_from(Role))
        leaves.append(Leaf(f"layers/{index % 3}/{index}", shape, "float32", role, max(1, stack)))
    return leaves


@given(
    some_leaves(),
    st.integers(1, 8),
    st.sampled_from(["balanced", "strided", "layers"]),
    st.integers(1, 40),
)
def test_every_element_is_in_exactly_one_piece_and_no_fragment_is_empty(
    leaves: list[Leaf], count: int, pattern: str, min_piece_bytes: int
) -> None:
    layout = plan(leaves, count=count, pattern=pattern, min_piece_bytes=min_piece_bytes)  # type: ignore[arg-type]
    assert elements(layout) == Counter(
        (index, element) for index, leaf in enumerate(leaves) for element in range(leaf.size)
    )
    assert 1 <= len(layout.fragments) <= count
    for fragment in layout.fragments:
        assert fragment.size > 0
        ends = [0]
        for unit in fragment.units(RDA):
            assert unit.offset == ends[-1]
            assert unit.size > 0
            ends.append(unit.offset + unit.size)
        assert ends[-1] == fragment.size


@given(some_leaves(), st.integers(1, 8))
def test_values_survive_being_cut_up_and_put_together(leaves: list[Leaf], count: int) -> None:
    layout = plan(leaves, count=count, min_piece_bytes=4)
    rng = np.random.default_rng(0)
    arrays = {leaf.path: rng.standard_normal(leaf.shape).astype(np.float32) for leaf in leaves}
    again = layout.assemble(layout.disassemble(arrays))
    assert list(again) == list(arrays)
    for path, array in arrays.items():
        np.testing.assert_array_equal(again[path], array)


@given(st.lists(st.integers(1, 20), min_size=3, max_size=7), st.integers(2, 3))
def test_the_heaviest_balanced_fragment_is_within_four_thirds_of_the_optimum(
    sizes: list[int], count: int
) -> None:
    leaves = [one_row(f"leaf{i}", size) for i, size in enumerate(sizes)]
    layout = plan(leaves, count=count, min_piece_bytes=4)
    best = min(
        max(sum(s for s, b in zip(sizes, bins, strict=True) if b == bin_) for bin_ in range(count))
        for bins in product(range(count), repeat=len(sizes))
    )
    assert max(fragment.size for fragment in layout.fragments) <= best * KIB * 4 / 3


LARGE = [one_row(f"large{i}", 64) for i in range(3)]


@pytest.mark.parametrize(
    ("leaves", "count", "sizes"),
    [
        ([Leaf(f"w{i}", (8, 8)) for i in range(9)], 24, [9 * 64]),
        ([*LARGE, *(Leaf(f"b{i}", (64,)) for i in range(9))], 24, [64 * KIB + 192] * 3),
        ([Leaf("only", (200, KIB))], 24, [66 * KIB, 67 * KIB, 67 * KIB]),
        ([Leaf("a", (512, KIB)), Leaf("b", (512, KIB))], 8, [128 * KIB] * 8),
    ],
    ids=["no piece of 64 KiB", "three of them", "rows of one", "fewer tensors than fragments"],
)
def test_fragments_are_no_more_than_the_pieces_of_64_kib(
    leaves: list[Leaf], count: int, sizes: list[int]
) -> None:
    layout = plan(leaves, count=count)
    assert sorted(fragment.size for fragment in layout.fragments) == sizes


def test_a_tensor_that_is_most_of_the_model_is_spread_by_rows() -> None:
    leaves = [Leaf("large", (960, KIB))] + [Leaf(f"small{i}", (80, KIB)) for i in range(8)]
    layout = plan(leaves, count=4)
    assert sum(piece.path == "large" for f in layout.fragments for piece in f.pieces) >= 3
    assert max(fragment.size for fragment in layout.fragments) <= 400 * KIB * 4 / 3


def test_equal_pieces_are_placed_by_name() -> None:
    leaves = [one_row(name, 64) for name in ("b", "c", "a")]
    layout = plan(leaves, count=3)
    assert [fragment.pieces[0].path for fragment in layout.fragments] == ["a", "b", "c"]


def test_units_follow_the_roles() -> None:
    leaves = [
        Leaf("embed", (64, 8), role=Role.EMBEDDING),
        Leaf("matrix", (8, 8)),
        Leaf("norm", (63,)),
        Leaf("scalar", ()),
    ]
    units = plan(leaves, count=1).fragments[0].units(RDA)
    wanted = [(512, AVERAGE), (64, RDA), (63, AVERAGE), (1, AVERAGE)]
    assert [(u.size, u.rule) for u in units] == wanted


def test_a_stack_is_merged_entry_by_entry() -> None:
    whole = plan([Leaf("stack", (5, 16, 8), stack=5)], count=1).fragments[0]
    assert [unit.size for unit in whole.units(RDA)] == [128] * 5
    cut = plan([Leaf("stack", (2, 9, 64), stack=2)], count=4, min_piece_bytes=4)
    sizes = [unit.size for fragment in cut.fragments for unit in fragment.units(RDA)]
    assert sum(sizes) == 2 * 9 * 64
    assert max(sizes) <= 5 * 64


def test_a_stack_is_cut_between_its_entries_first() -> None:
    layout = plan([Leaf("stack", (12, 64, KIB), stack=12)], count=5)
    rows = [(p.row_start, p.row_stop) for f in layout.fragments for p in f.pieces]
    assert all(start % 64 == 0 and stop % 64 == 0 for start, stop in rows)


def layer_model() -> list[Leaf]:
    """Six numbered layers and an embedding."""
    return [Leaf("embed", (64, KIB), role=Role.EMBEDDING)] + [
        Leaf(f"layers/{i}/weight", (64, KIB)) for i in range(6)
    ]


def layers_of(fragment: Fragment) -> list[str]:
    """Paths of the pieces in a fragment, without the embedding."""
    return [piece.path.split("/")[1] for piece in fragment.pieces if "/" in piece.path]


@pytest.mark.parametrize(
    ("pattern", "expected"), [("layers", ["0", "1", "2"]), ("strided", ["0", "2", "4"])]
)
def test_layered_patterns(pattern: str, expected: list[str]) -> None:
    """`layers` keeps consecutive layers together, `strided` takes every P-th."""
    layout = plan(layer_model(), count=2, pattern=pattern)  # type: ignore[arg-type]
    assert layers_of(layout.fragments[0]) == expected


def test_a_stacked_leaf_gives_its_entries_to_the_layers() -> None:
    layout = plan([Leaf("w", (4, 64, KIB), stack=4)], count=2, pattern=Pattern.STRIDED)
    first_rows = [piece.row_start for piece in layout.fragments[0].pieces]
    assert first_rows == [0, 128]


def test_equal_layouts_have_equal_fingerprints() -> None:
    one, other = plan(layer_model(), count=4), plan(layer_model(), count=4)
    assert one == other
    assert one.first_difference(other) is None


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (plan(layer_model(), count=4, labels={"corpus": "b"}), "corpus = b"),
        (plan(layer_model()[:-1], count=4, labels={"corpus": "a"}), "layers/5/weight"),
        (plan(layer_model(), count=3, labels={"corpus": "a"}), "3 fragments"),
        (
            plan([Leaf("embed", (64, KIB)), *layer_model()[1:]], count=4, labels={"corpus": "a"}),
            "embed: float32[64,256] matrix",
        ),
    ],
)
def test_a_difference_is_named(other: Layout, named: str) -> None:
    here = plan(layer_model(), count=4, labels={"corpus": "a"})
    assert here.fingerprint != other.fingerprint
    difference = here.first_difference(other)
    assert difference is not None
    assert named in difference


def test_the_default_role_goes_by_path() -> None:
    """Any path with `embed` in it is an embedding."""
    assert default_role("model/Embed_0/table") is Role.EMBEDDING
    assert default_role("layers/0/weight") is Role.MATRIX


@pytest.mark.parametrize("pattern", ["balanced", "strided"])
def test_a_leaf_beside_another_is_cut_where_that_one_is(pattern: Pattern) -> None:
    leaves = [Leaf("blocks", (4, 8, 8), stack=4), Leaf("embed", (16, 8))]
    moment = Leaf("nu/blocks", (4, 8, 8), role=Role.STATE, stack=4)
    made = partial(plan, count=3, pattern=pattern, min_piece_bytes=64)
    alone = made(leaves)
    both = made([*leaves, moment], beside={"nu/blocks": "blocks"})
    assert len(both.fragments) == len(alone.fragments) == 3

    def cuts(layout: Layout, path: str) -> list[list[tuple[int, int]]]:
        pieces = [[p for p in f.pieces if p.path == path] for f in layout.fragments]
        return [[(p.row_start, p.row_stop) for p in held] for held in pieces]

    assert cuts(both, "blocks") == cuts(both, "nu/blocks") == cuts(alone, "blocks")
    assert cuts(both, "embed") == cuts(alone, "embed")


@pytest.mark.parametrize(
    ("leaves", "sentence"),
    [
        ([Leaf("steps", (3,), "int32")], "steps is int32: only floating leaves train"),
        ([Leaf("w", (3,)), Leaf("w", (4,))], "the path w occurs twice"),
        ([], "no trainable elements"),
        ([Leaf("w", (0, 3))], "no trainable elements"),
        ([Leaf("w", (6, 4), stack=4)], "a stack of 4 is not made of leading axes"),
    ],
)
def test_leaves_that_cannot_train_are_refused(leaves: list[Leaf], sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence):
        plan(leaves, count=2)


@pytest.mark.parametrize(
    ("count", "pattern", "sentence"),
    [
        (0, "balanced", "at least 1"),
        (2, "spiral", "'spiral' is unknown"),
        (2, "layers", "needs numbered or stacked layers"),
    ],
)
def test_settings_that_cannot_work_are_refused(count: int, pattern: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        plan([Leaf("w", (4, 4))], count=count, pattern=pattern)  # type: ignore[arg-type]
