"""What the pages of docs/howto/ show works: their tasks, and what wakes an operator."""

import subprocess
import sys
from pathlib import Path

import pytest

from islands.metrics.notices import notice_of
from islands.protocol.tape.member_entries import Evicted
from tests.pages import Page
from tests.test_recipes import check_task

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def first_block(page: str) -> str:
    """The first snippet of Python of a page."""
    blocks = Page(f"docs/howto/{page}.md").blocks
    return next(text for _, language, text in blocks if language == "python")


@pytest.mark.parametrize(("page", "name"), [("own_model", "MyTask"), ("own_data", "Mean")])
def test_the_task_of_a_page_has_nothing_to_mend(
    page: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_task(name, first_block(page), tmp_path / f"howto_{page}.py", monkeypatch)


def test_the_script_that_wakes_an_operator_understands_a_notice(tmp_path: Path) -> None:
    told = tmp_path / "events"
    script = tmp_path / "wake"
    script.write_text(first_block("weeks").replace("/tmp/islands-events", str(told)))  # noqa: S108
    entry = Evicted("ana", "1.2", "silent")
    notice = notice_of("weeks", "supervisor", entry, 0.0)
    subprocess.run([sys.executable, str(script)], input=notice, check=True, timeout=30)
    assert told.read_text() == "1970-01-01T00:00:00Z evicted ana was evicted: silent\n"
