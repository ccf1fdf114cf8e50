"""`docs/journey.md` names rules and methods that are there."""

import re

import pytest

from tests.environment import ROOT

ISLANDS = ROOT / "islands"
PAGE = (ROOT / "docs" / "journey.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py):(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_function_that_the_page_names_is_there(file: str, name: str) -> None:
    files = [ISLANDS / file] if "/" in file else list(ISLANDS.rglob(file))
    assert any(re.search(rf"def {name}\(", path.read_text("utf-8")) for path in files), file


def test_the_page_names_many() -> None:
    """So that a change of its form does not empty the test above."""
    assert len(NAMED) > 30
