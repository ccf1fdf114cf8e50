"""Which devices a learner gets, where its arrays live, and that meshes train as one device does."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from islands.layout.leaves import Leaf
from islands.model.device_transfer import cut_of, piece_shape
from islands.model.placement import choose, learner_mesh, placed, shares
from islands.protocol.errors import SettingsError
from tests.compiling import QUICKLY_COMPILED

HOST = list("abcdefgh")
LIMIT_S = 220.0  # for 60 s of compilation, on a machine that may have much else to do


@pytest.mark.parametrize(
    ("spec", "found"),
    [("all", "abcdefgh"), ("0,1", "ab"), ("0-3", "abcd"), (" 6 - 7, 2 ", "ghc"), ("5", "f")],
)
def test_devices_are_chosen_by_number(spec: str, found: str) -> None:
    assert choose(HOST, spec) == list(found)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("0-8", "this host has devices 0 to 7"),
        ("3-1", "this host has devices 0 to 7"),
        ("gpu0", "'all', or numbers such as '0,1' or '0-3'"),
        ("", "'all', or numbers"),
        ("1,", "'all', or numbers"),
        ("-1", "'all', or numbers"),
        ("0-2,2", "names a device twice"),
    ],
)
def test_devices_that_cannot_be_chosen_are_named(spec: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        choose(HOST, spec)
    with pytest.raises(SettingsError, match="this host has only device 0"):
        choose(HOST[:1], "1")


def test_one_device_needs_no_mesh() -> None:
    device = jax.local_devices()[0]
    place = placed([device])
    assert place.mesh is None
    assert cut_of(place.tensor((1024, 1024)), 2) == ((), ())
    assert place.padded(7) == 7
    kinds = [place.whole, place.flat, place.tensor((1024, 1024)), place.rows((8,))]
    assert kinds == [SingleDeviceSharding(device)] * 4
    assert placed(None).devices == (device,)


def test_a_mesh_shares_rows_and_cuts_large_tensors() -> None:
    devices = jax.local_devices()
    assert dict(learner_mesh(devices[:1]).shape) == {"data": 1, "model": 1}
    with pytest.raises(SettingsError, match="must divide the learner's 1 device"):
        learner_mesh(devices[:1], 2)
    assert shares(2, None) == [None, None]
    with pytest.raises(SettingsError, match="this process has"):
        shares(2, len(devices))


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


TRAINERS, LEAVES = "tests/eight_devices.py", "tests/eight_devices_leaves.py"


@pytest.mark.quick("stacks and not second", "written and three", "travels")
@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize(
    ("file", "subject"),
    [
        (TRAINERS, "decoder and not second"),
        (TRAINERS, "stacks and not second"),
        (TRAINERS, "second_moments"),
        (TRAINERS, "system"),
        (LEAVES, "read"),
        (LEAVES, "written and three"),
        (LEAVES, "written and not three"),
        (LEAVES, "travels"),
        (LEAVES, "model or moments"),
    ],
)
def test_meshes_of_eight_devices(file: str, subject: str) -> None:
    command = [sys.executable, "-m", "pytest", "--quiet", file, "-k", subject]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"} | QUICKLY_COMPILED
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
