"""What the pages of docs/howto/ show works: their tasks, and what wakes an operator."""

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from islands.metrics.notices import notice_of
from islands.model.jax_workload import JaxWorkload
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.member_entries import Evicted
from tests.environment import ROOT

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def first_block(page: str) -> str:
    """The first snippet of Python of a page."""
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    return str(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])


@pytest.mark.parametrize(("page", "name"), [("own_model", "MyTask"), ("own_data", "Mean")])
def test_the_task_of_a_page_has_nothing_to_mend(
    page: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"howto_{page}.py"
    file.write_text(first_block(page))
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


def test_the_script_that_wakes_an_operator_understands_a_notice(tmp_path: Path) -> None:
    told = tmp_path / "events"
    script = tmp_path / "wake"
    script.write_text(first_block("weeks").replace("/tmp/islands-events", str(told)))  # noqa: S108
    entry = Evicted("ana", "1.2", "silent")
    notice = notice_of("weeks", "supervisor", entry, 0.0)
    subprocess.run([sys.executable, str(script)], input=notice, check=True, timeout=30)
    assert told.read_text() == "1970-01-01T00:00:00Z evicted ana was evicted: silent\n"
