"""The documentation lists every argument of both functions that join a run, and no other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = {"islands.join": "join.py", "islands.torch.join": "join_torch.py"}


def parameters_of(file: str) -> set[str]:
    """The parameters of `join` in a file, whose framework need not be installed."""
    tree = ast.parse((ROOT / "islands" / "loops" / file).read_text())
    found = [
        each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "join"
    ]
    arguments = found[0].args
    return {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}


@pytest.mark.parametrize("function", PLACES)
def test_the_arguments_are_those_of_the_documentation(function: str) -> None:
    page = (ROOT / "docs" / "own_loops.md").read_text()
    table = page.partition("## Arguments")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (both|`[\w.]+`) \|", table, re.MULTILINE)
    told = [name for name, of in rows if of in ("both", f"`{function}`")]
    assert len(told) == len(set(told))
    assert set(told) == parameters_of(PLACES[function])
