"""The report: the page of runs in one file, and what stands in it."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from islands.cli.__main__ import main
from islands.page.messages import POINTS_MOST, encoded, of_curves, run_lines, thinned
from islands.page.site_files import IMPORT, MODULES, SERVED, bundle, content_of, single_page
from islands.run.records.figures import restored
from islands.run.records.run_curves import curves_of
from tests.page.run_folder import BEGAN_S, LAYOUT, LEARNERS, TOKENS, make_run

HERE = Path(__file__).parent
NODE = shutil.which("node")
without_node = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")


def entries(lines: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@without_node
def test_what_the_page_does_with_a_tape_is_as_its_tables_say() -> None:
    """The tables are in JavaScript, as the page is: `reducer.test.mjs`, `questions.test.mjs`."""
    assert NODE is not None
    files = sorted(str(path) for path in HERE.glob("*.test.mjs"))
    found = subprocess.run([NODE, "--test", *files], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-4000:]


def test_a_report_has_settings_curves_tape_and_figures(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 10)
    found = entries(run_lines(folder))
    assert [each["kind"] for each in (*found[:2], found[-1])] == [
        *("page.run", "page.curves", "page.figures")
    ]
    run, curves, *_, figures = found
    assert run["name"] == "mine"
    assert [each["size"] for each in run["fragments"]] == [each.size for each in LAYOUT.fragments]
    wall_s, counted, _ = restored(folder)
    assert figures["tokens"] == counted.tokens == 2 * 10 * TOKENS
    assert figures["merges"] == 10
    assert figures["yield"] == counted.yield_of(2, counted.tokens)
    assert figures["goodput"] == counted.goodput(wall_s)
    assert {row["name"]: row["tokens"] for row in figures["learners"]} == dict.fromkeys(
        LEARNERS, 10 * TOKENS
    )
    assert figures["bytes_up"] + figures["bytes_down"] == 2 * 10 * 4000
    assert figures["evaluation"] == {"bits": 2.5}
    assert curves["evaluations"] == {"bits": [[TOKENS, 2.5]]}
    assert curves["loss"][-1][0] <= figures["tokens"]


def test_figures_of_the_summary_stand_in_place_of_those_counted_on_the_way(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 10)
    told = {"tokens": 1234, "yield": 0.75, "reason": "tokens", "merges": 9, "goodput": 0.5}
    (folder / "summary.json").write_text(json.dumps(told))
    figures = entries(run_lines(folder))[-1]
    assert {name: figures[name] for name in told} == told


def test_learners_of_other_hosts_have_the_states_that_the_hub_kept(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 10)
    assert "page.state" not in {each["kind"] for each in entries(run_lines(folder))}
    shutil.rmtree(folder / "processes" / LEARNERS[1])
    found = entries(run_lines(folder))
    states = [each for each in found if each["kind"] == "page.state"]
    assert {each["name"] for each in states} == {LEARNERS[1]}
    assert "stepping" in [each["state"] for each in states]
    times = [each["t"] for each in found[2:]]
    assert times[:-1] == sorted(times[:-1])


def test_curves_have_wall_times_over_restarts(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", 3)
    path = folder / "metrics.jsonl"
    first = [line for line in path.read_text().splitlines() if '"step"' in line]
    assert len(first) == 3 * len(LEARNERS)
    path.write_text("\n".join([*first, *first]) + "\n")
    (told,) = entries([encoded(of_curves(restored(folder)[1], curves_of(folder), BEGAN_S))])
    times = [point[0] - BEGAN_S for point in told["pace"]]
    assert times == [-2.0, -2.0, -1.0, -1.0, 0.0, 0.0, 10.5, 10.5, 11.5, 11.5, 12.5, 12.5]
    assert list(told["learners"]) == list(LEARNERS)


def test_a_page_shows_no_more_points_than_it_can() -> None:
    points = [(float(number),) for number in range(50_000)]
    assert len(thinned(points)) <= POINTS_MOST + 1
    assert (thinned(points)[0], thinned(points)[-1]) == (points[0], points[-1])
    assert thinned(points[:2]) == points[:2]


def test_a_report_opens_without_a_network_and_runs_no_script_but_its_own(tmp_path: Path) -> None:
    page = single_page([run_lines(make_run(tmp_path / "run", 3))], "mine")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    for tag in ("script", "style"):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert texts
        for text in texts:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy[1]
    assert not re.findall(r"""<(?:script|link|img)[^>]*(?:src|href)=["'](?!data:)""", page)
    assert "<title>mine</title>" in page


def test_text_of_a_run_ends_no_element_of_the_page() -> None:
    evil = b'{"kind":"status","name":"</script><script>alert(1)</script>"}'
    page = single_page([[evil]], "a & <b>")
    assert "alert(1)</script>" not in page
    assert "<title>a &amp; &lt;b></title>" in page
    data = re.search(r'<script type="application/x-ndjson">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == json.loads(evil)


def test_modules_are_such_as_can_be_put_into_one_file() -> None:
    seen: list[str] = []
    for name in MODULES:
        text = content_of(name).decode()
        imports = [line for line in text.splitlines() if line.startswith("import ")]
        assert len(imports) == len(IMPORT.findall(text)), name
        assert all(f"{found[1]}.mjs" in seen for found in IMPORT.findall(text)), name
        assert "export default" not in text
        assert "export {" not in text
        assert "</script" not in text
        seen.append(name)
    static = Path(content_of.__wrapped__.__globals__["FOLDER"])
    assert {str(path.relative_to(static)) for path in static.rglob("*") if path.is_file()} == {
        *SERVED,
        "vendor/uPlot.LICENSE",
    }


@without_node
def test_one_file_of_modules_does_what_they_do() -> None:
    assert NODE is not None
    modules = {
        "one.mjs": "export const two = 2;\nexport function twice(x) {\n  return two * x;\n}\n",
        "last.mjs": 'import { twice as double } from "./one.mjs";\nconsole.log(double(21));\n',
    }
    found = subprocess.run(
        [NODE, "-e", bundle(modules)], capture_output=True, text=True, check=True
    )
    assert found.stdout == "42\n"


def test_the_command_writes_several_runs_into_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (make_run(tmp_path / name, 3) for name in ("one", "two"))
    out = tmp_path / "both.html"
    assert main(["report", str(one), str(two), str(one), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {one}, {two}; open it in a browser\n"
    assert out.read_text().count('<script type="application/x-ndjson">') == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "folders is empty"),
        (("run", "--out", "a.txt"), "out is a.txt; it must be a .html file"),
        (("nowhere",), "there is no folder nowhere"),
        (("empty",), "empty is not the folder of a run: it has no run.json"),
        (("run", "--out", "none/a.html"), "none/a.html cannot be written: No such file"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run", 1)
    (tmp_path / "empty").mkdir()
    assert main(["report", *arguments]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert sentence in told.err
    assert not list(tmp_path.glob("*.html"))
