"""`islands logs`: the tapes of all processes as one text, in the order of time."""

from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.cli.logs import line_of
from tests.page.run_folder import make_run


def test_entries_of_all_processes_are_printed_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", str(make_run(tmp_path / "run", 3))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:18] for line in lines] == sorted(line[:18] for line in lines)
    writers = {line.split()[2] for line in lines}
    assert writers == {"supervisor", "syncer", "learner-0", "learner-1"}
    assert " supervisor  admitted name=learner-0 role=learner " in lines[0]
    merged = next(line for line in lines if " merged " in line)
    assert 'participants=["learner-0","learner-1"]' in merged


def test_a_name_from_afar_cannot_steer_the_terminal() -> None:
    line = line_of(0.0, b'{"t":0.0,"actor":"a","kind":"left","name":"\\u001b[2J","reason":"a b"}')
    assert line.endswith(r' a           left name=\x1b[2J reason="a b"')
