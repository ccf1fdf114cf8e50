"""The Python of README and docs/runs.md runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from islands.model.jax_settings import cpu_environment

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "runs.md")
TEXT = "".join(page.read_text() for page in PAGES)
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
EXPECTED = (r"\d+\.\d\d bits per byte, yield \d+%", r"y = (2\.9|3\.0)\d x -(0\.9|1\.0)\d")


@pytest.mark.quick("1")
@pytest.mark.parametrize("index", range(len(EXPECTED)))
def test_each_block_of_python_runs_and_prints_what_it_should(index: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[index])
    found = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, **cpu_environment(2, observers=1), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert re.search(EXPECTED[index], found.stdout), found.stdout


def test_no_block_of_python_is_left_out() -> None:
    assert len(BLOCKS) == len(EXPECTED)


def test_no_package_is_told_to_be_installed_that_is_not_published() -> None:
    places = [
        *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
        *(path for top in ("docs", "examples") for path in (ROOT / top).rglob("*.*")),
        *(path for top in ("islands", "messaging") for path in (ROOT / top).rglob("*.py")),
    ]
    texts = {
        path: path.read_text(errors="replace")
        for path in places
        if path.suffix != ".png" and path.is_file()
    }
    told = re.compile(r"pip install [^\n;]*?\bislands(?![\w/.\[-])")  # an extra of what is here
    assert not [str(path) for path, text in texts.items() if told.search(text)]
