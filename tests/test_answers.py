"""docs/answers.md quotes sentences as the program says them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.environment import ROOT

VALUE = "\0"
"""What stands for a value in a sentence of the program, and `…` on the page."""

ROWS = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "answers.md").read_text(), re.MULTILINE)
QUOTED = [quoted for row in ROWS for quoted in re.findall(r"`([^`]+)`", row)]


def sentences_of(path: Path) -> Iterator[str]:
    """Yield the texts of a source file, without its docstrings."""
    if path.suffix == ".mjs":
        yield from re.sub(r"\$\{[^}]*\}", VALUE, path.read_text()).splitlines()
        return
    tree = ast.parse(path.read_text())
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in silent:
            yield str(node.value)


@cache
def said() -> str:
    """Return all that the program may say, a sentence a line."""
    paths = [path for top in ("islands", "messaging") for path in (ROOT / top).rglob("*.*")]
    found = (
        each for path in paths if path.suffix in (".py", ".mjs") for each in sentences_of(path)
    )
    return "\n".join(" ".join(each.split()) for each in found)


def is_said(quoted: str) -> bool:
    """Whether one sentence of the program has all words of a quoted one, in their order."""
    words = [re.escape(part.strip()) for part in quoted.split("…")]
    return re.search(".*".join(words), said()) is not None


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_sentence_stands_in_the_program(quoted: str) -> None:
    assert is_said(quoted), f"no sentence of the program is: {quoted}"


def test_a_sentence_that_the_program_does_not_say_is_seen() -> None:
    assert is_said("others can read the secret at …: run chmod 600 …")
    assert not is_said("others can read the secret at …: run chmod 644 …")
    assert not is_said("run chmod 600 …: others can read the secret at …")
    assert not is_said(str(is_said.__doc__))


def test_the_page_answers_what_it_promises() -> None:
    assert len(ROWS) >= 50
    assert not [row for row in ROWS if row.count("`") % 2]
