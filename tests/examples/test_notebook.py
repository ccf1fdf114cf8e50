"""The notebook of the examples runs from its first cell to a trained model and a plot.

Neither nbformat nor nbclient is among the constraints, and nbclient would start a kernel of
Jupyter. So the cells are read as JSON and run as IPython runs them: in order, in one namespace, and
with `await` at the top level.
"""

import ast
import inspect
import json
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import matplotlib.pyplot as plt
import pytest

from tests.environment import ROOT

FILE = ROOT / "examples" / "notebook.ipynb"
NOTEBOOK = json.loads(FILE.read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def no_network(*_: object) -> NoReturn:
    raise AssertionError("the notebook dials somebody")


def test_what_is_committed_is_short_and_has_no_outputs() -> None:
    assert len(CODE) <= 12
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    for number, source in enumerate(CODE):
        compile(source, f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.long("test_what_is_committed_is_short_and_has_no_outputs")
async def test_all_cells_run_in_order_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, no_network)
    plt.switch_backend("agg")
    for number, source in enumerate(CODE):
        code = compile(source, f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        found = eval(code, notebook.__dict__)  # noqa: S307  (our own cells)
        if inspect.iscoroutine(found):
            await found
    drawn = [axes for number in plt.get_fignums() for axes in plt.figure(number).axes]
    plt.close("all")
    summary = notebook.summary
    assert summary["accuracy"] > 0.95
    assert summary["ledger"]["imbalance"] == 0
    assert "learner-2: " in capsys.readouterr().out
    assert summary["learners"]["learner-2"]["incarnations"] == 2
    assert len(drawn) == 3
    assert all(axes.has_data() for axes in drawn)
