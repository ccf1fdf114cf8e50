"""How an optimizer's state is cut into pieces of bytes, and put together again."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.model.moment_pieces import MomentSnapshot, plan_moments
from islands.model.moment_plan import MomentPlan, joined

DTYPES = st.sampled_from([np.float32, ml_dtypes.bfloat16, np.int32, np.bool_])
LEAVES = st.lists(st.tuples(st.lists(st.integers(0, 7), max_size=3).map(tuple), DTYPES), max_size=8)


def shapes(leaves: list[tuple[tuple[int, ...], type]]) -> dict[str, NDArray[np.generic]]:
    state: dict[str, NDArray[np.generic]] = {}
    for index, (shape, dtype) in enumerate(leaves):
        count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
        content = (np.arange(count) + index).astype(np.uint8)
        state[f"leaf{index}"] = content.view(dtype).reshape(shape)
    return state


def cut(plan: MomentPlan, state: dict[str, NDArray[np.generic]]) -> list[bytes]:
    rows = {}
    for index, leaf in enumerate(state.values()):
        rows[index] = leaf.tobytes()
    pieces = []
    for piece in plan.pieces:
        parts = []
        for part in piece:
            row_bytes = part.size_bytes // part.rows
            start = part.row_start * row_bytes
            parts.append(rows[part.leaf][start : start + part.size_bytes])
        pieces.append(b"".join(parts))
    return pieces


@given(LEAVES, st.integers(4, 200))
def test_pieces_are_small_and_make_up_the_state(
    leaves: list[tuple[tuple[int, ...], type]], most_bytes: int
) -> None:
    state = shapes(leaves)
    plan = plan_moments(state, most_bytes)
    pieces = cut(plan, state)
    assert all(0 < len(piece) <= most_bytes for piece in pieces)
    assert b"".join(pieces) == b"".join(leaf.tobytes() for leaf in state.values())
    found = joined(plan, [memoryview(piece) for piece in pieces])
    for mine, theirs in zip(found, state.values(), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert mine.tobytes() == theirs.tobytes()
    assert (plan.schema == "") == (not pieces)


def test_a_leaf_that_fits_is_never_cut() -> None:
    state = {
        "count": np.zeros((), np.int32),
        "large": np.zeros((10, 3, 8), np.float32),
        "small": np.zeros((8, 2), np.float32),
    }
    plan = plan_moments(state, 400)
    found = [[(part.leaf, part.rows, part.leaf_rows) for part in piece] for piece in plan.pieces]
    assert found == [[(0, 1, 1), (1, 4, 10)], [(1, 4, 10)], [(1, 2, 10), (2, 1, 1)]]


def test_the_schema_tells_states_apart() -> None:
    def schema(name: str, shape: tuple[int, ...], dtype: type, most_bytes: int = 100) -> str:
        return plan_moments({name: np.zeros(shape, dtype)}, most_bytes).schema

    standard = schema("mu", (4, 2), np.float32)
    assert standard == schema("mu", (4, 2), np.float32, 8)
    others = [
        schema("nu", (4, 2), np.float32),
        schema("mu", (2, 4), np.float32),
        schema("mu", (4, 2), ml_dtypes.bfloat16),
    ]
    assert len({standard, *others}) == 4


def test_a_piece_tells_whether_its_floating_numbers_are_finite() -> None:
    broken = jnp.array([1.0, jnp.nan], jnp.bfloat16)
    assert MomentSnapshot((jnp.arange(3), jnp.ones(2, jnp.bfloat16))).finite()
    assert not MomentSnapshot((jnp.arange(3), broken)).finite()
