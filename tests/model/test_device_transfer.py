"""How a sharding cuts a leaf."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from islands.layout.leaves import Leaf
from islands.model.device_transfer import cut_of, piece_shape


def test_the_axes_that_cut_a_dimension_are_told_in_order() -> None:
    grid = np.array(jax.local_devices()[:1], dtype=object).reshape(1, 1)
    sharding = NamedSharding(Mesh(grid, ("a", "b")), PartitionSpec(("b", "a")))  # type: ignore[no-untyped-call]
    assert cut_of(sharding, 2) == ((), ())
    assert cut_of(SingleDeviceSharding(jax.local_devices()[0]), 3) == ((), (), ())


def test_a_whole_leaf_is_one_row() -> None:
    leaf, cut = Leaf("stack", (4, 6, 5), stack=4), (("a",), (), ("b",))
    whole, part = piece_shape(0, leaf, 24, cut), piece_shape(0, leaf, 23, cut)
    assert (whole.rows, whole.row_axes, whole.size, whole.cut_rows) == (1, 0, 120, ())
    assert whole.cut_within == [(1, ("a",)), (3, ("b",))]
    assert (part.rows, part.row_axes, part.size, part.cut_rows) == (23, 2, 115, ("a",))
    assert part.cut_within == [(1, ("b",))]
