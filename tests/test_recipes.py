"""The recipes of docs/recipes.md keep the contract that docs/tasks.md explains."""

import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from islands.model.jax_workload import JaxWorkload
from islands.protocol.settings.run import RunSettings
from tests.environment import ROOT

pytestmark = pytest.mark.usefixtures("quickly_compiled")

PAGE = (ROOT / "docs" / "recipes.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHARED = 0
"""The block that all recipes begin with."""

RECIPES = {
    "NnxTask": (1,),
    "LinenTask": (2,),
    "EquinoxTask": (3,),
    "GrainTask": (2, 4),
    "StreamTask": (2, 4, 5),
    "ArrivingTask": (2, 6),
}


@pytest.mark.quick("NnxTask", "StreamTask")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that are shown
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_nothing_to_mend(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "EquinoxTask" and find_spec("equinox") is None:
        pytest.skip("Equinox is not installed")
    (tmp_path / "arriving").mkdir()
    np.save(tmp_path / "arriving" / "0001.npy", np.ones((160, 8), np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    source = "\n".join(BLOCKS[index] for index in (SHARED, *RECIPES[name]))
    check_task(name, source, tmp_path / f"recipe_{name}.py", monkeypatch)


def check_task(name: str, source: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the source of a page from a file, and have its task checked to the end."""
    file.write_text(source)
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    workload = JaxWorkload(getattr(module, name)())
    report = workload.check(RunSettings(), values=True, room_bytes=None)
    assert report.faults == []
    assert [part for part, _ in report.passed][-1] == "step"


def test_every_block_is_a_recipe() -> None:
    tried = {index for recipe in RECIPES.values() for index in recipe}
    assert tried | {SHARED} == set(range(len(BLOCKS)))


def test_an_average_is_evaluated_and_neither_sent_nor_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples"))
    averaged = import_module("averaged").Averaged(decay=0.75)
    plain = import_module("line").Line()
    settings = RunSettings(fragments=1)
    made = [JaxWorkload(task).plan(settings) for task in (averaged, plain)]
    assert made[0].layout.leaves == made[1].layout.leaves
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.eval_shape(lambda p: averaged.evaluate(p, None), (jnp.ones(()), jnp.ones(())))
    found = [averaged.evaluate((np.float32(x), np.float32(0)), None) for x in (1.0, 5.0, 5.0)]
    assert [each["slope"] for each in found] == [1.0, 5.0, 5.0]
    assert [each["average_slope"] for each in found] == [1.0, 2.0, 2.75]
