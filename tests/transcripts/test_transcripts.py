"""Ten scenarios as a reviewer reads them: what happened, and all that the states made of it.

A change of a rule shows as a diff of these files. Read it; then `pytest tests/transcripts
--rewrite_transcripts` writes them as they come out now.
"""

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.transcripts.script import files, replay

SCENARIOS = {
    *("closing", "donor", "eviction", "grace", "join"),
    *("pause", "refusal", "restart", "round", "split"),
}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.stem))
def test_a_transcript_is_what_comes_out(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text(encoding="utf-8")
    played = replay(written)
    if request.config.getoption("--rewrite_transcripts"):
        path.write_text(played, encoding="utf-8")
        return
    lines = written.splitlines(), played.splitlines()
    diff = unified_diff(*lines, "as written", "as it comes out", lineterm="")
    if written != played:
        pytest.fail("\n".join([f"{path.name} has changed:", *diff]), pytrace=False)


def test_every_scenario_has_its_transcript() -> None:
    assert {path.stem for path in files()} == SCENARIOS


def test_a_transcript_that_was_edited_is_not_what_comes_out() -> None:
    script = "# Nobody is there.\n\n> run fragments=1\n> syncer starts\n"
    assert replay(script + "   0.000  syncer: tick\n") == replay(script)
