"""The scenarios of the tree, played by the actors on a virtual clock, and the page they make."""

from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.cli.parsing import parse
from islands.lab.faults.report import chapters
from islands.lab.faults.schedule import strikes_of
from islands.lab.faults.simulated import ROUTE, left_out, play, scenario_of
from islands.lab.faults.verdict import verdict_of
from islands.lab.settings.chaos import ChaosOptions, faults_of
from islands.lab.world.deeds import deeds_of
from islands.protocol.tape.kinds import read
from messaging.simulation.network import Route

SCENARIOS = Path(__file__).parents[3] / "examples" / "scenarios"
FILES = sorted(path.name for path in SCENARIOS.glob("*.yaml"))
SHORTER = ("--task_settings", "{step_s: 0.1}", "--control_s", "1")


def read_file(name: str) -> ChaosOptions:
    """The options of a scenario in the tree."""
    words = [str(SCENARIOS / name), *SHORTER]
    options, _ = parse(ChaosOptions, words, program="islands chaos", description="")
    return options


def small(folder: Path) -> Path:
    """A scenario of one fault, which takes a moment to play."""
    path = folder / "small.yaml"
    path.write_text(
        "run: {interval_steps: 8, fragments: 2, warmup_steps: 0, timing: {patience: 0.2}}\n"
        "task_settings: {step_s: 0.1}\nlearners: 2\ncontrol_s: 1\nrest_s: 2\n"
        "faults: {killed: {fault: kill, who: learner-1}}\n"
    )
    return path


class Links(HTMLParser):
    """Collects what a page would fetch, and the elements that are open at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{k}={v}" for k, v in attributes if k in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", FILES)
def test_a_scenario_of_the_tree_is_read(name: str) -> None:
    """All of its faults have a place in time, and the simulation can express some of them."""
    options = read_file(name)
    strikes = strikes_of(options)
    assert {strike.kind for strike in strikes} == {f.kind for f in faults_of(options).values()}
    assert scenario_of(options).strikes


def test_a_scenario_keeps_every_promise_on_a_virtual_clock() -> None:
    """What the simulation can express of it is played, and its chapters fetch nothing."""
    options = read_file("quick.yaml")
    played = play(options, print)
    verdict = verdict_of(options, played.findings, None, played.violations, played.left_out)
    assert verdict.kept, [*played.violations, *(j.broken for j in verdict.judged)]
    assert played.findings
    shown = "".join(chapters(options, played, verdict, "islands chaos <file>", "learners: 3"))
    links = Links()
    links.feed(shown)
    assert (links.fetched, links.open) == ([], [])
    assert "islands chaos &lt;file&gt;" in shown


def test_one_seed_gives_one_history(tmp_path: Path) -> None:
    """A scenario that is played again repeats to the byte."""
    options, _ = parse(
        ChaosOptions, [str(small(tmp_path))], program="islands chaos", description=""
    )
    assert play(options, print).history == play(options, print).history


def test_faults_become_those_of_the_simulation() -> None:
    """What has no equivalent there is left out, and told in a sentence each."""
    options = ChaosOptions(
        faults={
            "a": {"fault": "segfault", "who": "learner-1"},
            "b": {"fault": "terminate", "who": "learner-0"},
            "c": {"fault": "straggle", "who": "learner-0", "factor": 4, "for_s": 2},
            "d": {"fault": "block_loop", "who": "syncer"},
            "e": {"fault": "terminate", "who": "supervisor"},
            "f": {"fault": "kill", "who": "supervisor", "for_s": 2},
            "g": {"fault": "cut", "who": "learner-1", "way": "down", "link": "syncer"},
            "h": {"fault": "flap", "who": "learner-0", "link": "supervisor", "for_s": 2},
            "i": {**of(0, "syncer", "up"), "fault": "latency", "latency_s": 0.3, "jitter_s": 0.1},
            "k": {**of(0, "supervisor", "down"), "fault": "bandwidth", "bytes_s": 9e3},
            "l": {**of(0, "syncer"), "fault": "duplicate", "share": 0.5},
            "m": {**of(0, "both"), "fault": "reset"},
            "n": {"fault": "flip", "who": "all"},
        },
        control_s=3.0,
        rest_s=1.0,
    )
    bad = {"latency_s": 0.3, "jitter_s": 0.1}
    assert deeds(options) == [
        *[(3.0, "kill", "learner-1"), (3.3, "start", "learner-1")],
        *[(4.0, "leave", "learner-0"), (5.0, "start", "learner-0")],
        *[(6.0, "slow", "learner-0", 4.0), (8.0, "slow", "learner-0", 1.0)],
        *[(9.0, "freeze", "syncer"), (10.0, "thaw", "syncer")],
        *[(13.0, "kill", "supervisor"), (15.0, "start", "supervisor")],
        *[(16.0, "cut", "syncer", "learner-1", True), (17.0, "heal", "syncer", "learner-1")],
        (18.0, "note", "flapping", "learner-0", "supervisor"),
        *[(18.0, "cut", "learner-0", "supervisor", False, False)],
        *[(19.0, "heal", "learner-0", "supervisor")],
        *path(21.0, "learner-0", "syncer", replace(ROUTE, **bad)),
        *path(23.0, "supervisor", "learner-0", replace(ROUTE, bandwidth_bytes_per_s=9e3)),
        *path(25.0, "learner-0", "syncer", replace(ROUTE, duplicate=0.5)),
        *path(25.0, "syncer", "learner-0", replace(ROUTE, duplicate=0.5)),
        *[(27.0, "reset", "learner-0", "supervisor"), (27.0, "reset", "learner-0", "syncer")],
    ]
    assert [sentence.partition(" has")[0] for sentence in left_out(options)] == [
        "terminate of supervisor",
        "flip of learner-0, learner-1, learner-2",
    ]


def deeds(options: ChaosOptions) -> list[tuple[object, ...]]:
    """What a scenario does to a world: time, deed, and whom it happens to."""
    found: list[tuple[object, ...]] = []
    for strike in scenario_of(options).strikes:
        for at_s, deed in deeds_of(strike, ROUTE):
            assert isinstance(deed, partial)
            given = deed.keywords.values()
            flat = [
                each for one in given for each in (one if isinstance(one, list | tuple) else [one])
            ]
            kill = deed.func.__name__ == "kill"
            found.append((pytest.approx(at_s), deed.func.__name__, *(flat[:-2] if kill else flat)))
    return found


def path(at_s: float, source: str, target: str, route: Route) -> list[tuple[object, ...]]:
    """The deeds of a path that behaves otherwise for a second."""
    return [
        (at_s, "note", "bad path", source, target),
        (at_s, "set_route", source, target, route),
        (at_s + 1.0, "set_route", source, target, ROUTE),
    ]


def of(learner: int, link: str, way: str = "both") -> dict[str, object]:
    """Which link of a learner suffers a fault."""
    return {"who": f"learner-{learner}", "link": link, "way": way}


def test_packets_of_a_remote_host_are_dropped_as_its_links_are_cut() -> None:
    """All of them; where some are, the paths lose as many."""
    options = ChaosOptions(
        faults={
            "a": {"fault": "drop", "who": "remote", "way": "up"},
            "b": {"fault": "drop", "who": "remote", "every": 5},
            "c": {"fault": "shape", "who": "remote"},
        },
        remote=1,
        control_s=1.0,
    )
    peers = ("supervisor", "syncer")
    cuts = [
        (at_s, *deed)
        for peer in peers
        for at_s, *deed in (
            (1.0, "cut", "learner-2", peer, True),
            (2.0, "heal", "learner-2", peer),
        )
    ]
    assert deeds(options) == [
        *cuts,
        *(
            deed
            for peer in peers
            for source, target in (("learner-2", peer), (peer, "learner-2"))
            for deed in path(7.0, source, target, replace(ROUTE, drop=0.2))
        ),
    ]
    assert len(left_out(options)) == 1


def test_the_command_writes_the_page_and_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 0 if every promise was kept, else 1; without faults it is 2."""
    folder = str(tmp_path / "out")
    assert main(["chaos", str(small(tmp_path)), "--simulate", "--folder", folder]) == 0
    assert "Every promise was kept" in capsys.readouterr().out
    assert read((tmp_path / "out" / "history.jsonl").read_bytes().split(b"\n")[:-1])
    shown = (tmp_path / "out" / "chaos.html").read_text()
    assert "Every promise was kept" in shown
    assert '"kind":"fault"' in shown
    hasty = ["--back_most_s", "0.001", "--folder", str(tmp_path / "hasty")]
    assert main(["chaos", str(small(tmp_path)), "--simulate", *hasty]) == 1
    assert "1 of 1 faults broke a promise" in capsys.readouterr().out
    assert main(["chaos", "--simulate"]) == 2
    assert "faults holds none" in capsys.readouterr().err
