"""How a sharding cuts a leaf, and that leaves cut in any way are handled as whole ones are."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from islands.layout.leaves import Leaf
from islands.model.device_transfer import cut_of, piece_shape
from tests.compiling import QUICKLY_COMPILED

LIMIT_S = 220.0  # for 60 s of compilation, on a machine that may have much else to do


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


@pytest.mark.quick("written and three", "travels")
@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize(
    "subject", ["read", "written and three", "written and not three", "travels", "model or moments"]
)
def test_leaves_on_eight_devices(subject: str) -> None:
    """All of `tests/eight_devices_leaves.py` passes in a process that has eight devices."""
    command = [sys.executable, "-m", "pytest", "--quiet", "tests/eight_devices_leaves.py"]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"} | QUICKLY_COMPILED
    done = subprocess.run(
        [*command, "-k", subject],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
