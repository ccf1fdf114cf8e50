"""A hub, and a loop that is not JAX's, where neither JAX nor its companions can be imported."""

import sys
from pathlib import Path

import pytest

from islands.layout.loop_layout import LoopLayout
from islands.loops.join import enter, membership
from islands.tasks.data.shards import ShardKey
from tests.integration.programs import imbalance, open_room, summary_of
from tests.integration.test_own_loops import address_in
from tests.loops.test_joined_run import BATCH, Model, Parameters

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ABSENT = ("jax", "jaxlib", "flax", "optax", "grain", "orbax", "chex")
WITHOUT_JAX = f"""
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
HUB = WITHOUT_JAX + "import runpy; runpy.run_module('islands.syncer', run_name='__main__')"
LOOP = WITHOUT_JAX + "from tests.integration.test_without_jax import loop; loop(sys.argv[1])"
TORCH = (
    WITHOUT_JAX
    + """
try:
    import islands.torch
except ModuleNotFoundError as error:
    assert error.name == "torch", error
"""
)
BUDGET = 100 * BATCH


def loop(address: str) -> None:
    """Train a model of NumPy until the run is over."""
    model = Model()
    parameters = Parameters(model)
    who = membership(address, "ana", None, None, None, print)
    told = LoopLayout(model.layout.leaves)
    with enter(who, BATCH, lambda *_: parameters, layout=lambda: told) as run:
        while not run.over:
            run.boundary(run.params)
            batch, _ = next(iter(model.batches(ShardKey(0, 0), 0)))
            model.step(batch, 0.1)
            parameters.stepped = True


async def test_a_hub_and_a_loop_need_no_jax(tmp_path: Path) -> None:
    words = (
        *("--listen", "127.0.0.1:0", "--folder", "run"),
        *("--run.budget_tokens", str(BUDGET), "--run.fragments", "2", "--run.piece_bytes_min", "4"),
    )
    async with open_room(tmp_path) as room:
        hub = room.start_words((sys.executable, "-c", HUB, *words))
        address = await room.wait(lambda: address_in(hub.err))
        assert address is not None
        learner = room.start_words((sys.executable, "-c", LOOP, address))
        for each in (learner, hub):
            assert await room.ended(each) == 0, str(each)
    summary = summary_of(tmp_path / "run") or {}
    assert (summary["tokens"], imbalance(summary)) == (BUDGET, 0)


async def test_a_loop_of_pytorch_imports_no_jax(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        imported = room.start_words((sys.executable, "-c", TORCH))
        assert await room.ended(imported) == 0, str(imported)
