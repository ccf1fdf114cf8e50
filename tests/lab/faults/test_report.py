"""The page of a scenario has every figure, what was broken, and marks of who was struck."""

from dataclasses import replace

from islands.lab.checker import Violation
from islands.lab.faults.fault import Struck
from islands.lab.faults.gaps import Gap
from islands.lab.faults.report import chapters, marks
from islands.lab.faults.schedule import strikes_of
from islands.lab.faults.verdict import Control, Finding, Played, verdict_of
from islands.lab.settings.chaos import ChaosOptions

OPTIONS = ChaosOptions(faults={"a & b": {"fault": "freeze", "who": "learner-1", "for_s": 3}})
STRUCK = Struck(strikes_of(OPTIONS)[0], 105.0, 108.0, 112.0)


def test_all_that_was_found_is_on_the_page() -> None:
    """With the difference from the control, and with each broken promise in words."""
    found = Finding(STRUCK, Gap(0.03, 0.012, 0.018), 0.5, 0.6, 5.1, 1.25, kept_out=3)
    control = Control(100.0, 105.0, Gap(0.01, 0.002, 0.008), {"learner-0": 50.0, "learner-2": 49.0})
    played = Played((found,), control, (Violation("fence", "<late>"),), (), (), ("left out",))
    verdict = verdict_of(OPTIONS, played.findings, control, played.violations, played.left_out)
    above, among = chapters(OPTIONS, played, verdict, "islands chaos x.yaml", "seed: 0")
    for told in (
        *(
            "30.0 ms (+10.0)",
            ">12.0 ms<",
            "0.500",
            "0.60 s",
            "5.10 s",
            "1.25 s",
            "a &amp; b: freeze, 3 s",
        ),
        *("others stepped at 0.500 of their rate; it must be 0.98", "fence: &lt;late&gt;"),
        *(
            "longest gap 10.0 ms, of it the machine's own 2.0 ms; 49.0 to 50.0 steps/s",
            "left out",
            "islands chaos x.yaml",
        ),
        "1 of 1 faults broke a promise, and the history shows 1 broken promises.",
    ):
        assert told in above + among, told


def test_who_was_struck_is_marked_at_that_time() -> None:
    """Each victim has a mark in its own lane; a fault that could not be injected has none."""
    (mark,) = marks([STRUCK, replace(STRUCK, missed="no such process")], 1000.0)
    assert mark == {
        "t": 1105.0,
        "kind": "fault",
        "actor": "learner-1",
        "fault": "1. a & b: freeze for 3.0 s",
        "names": ["learner-1"],
    }
