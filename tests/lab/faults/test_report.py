"""The page of real processes has every figure, what was broken, and the timeline of who stepped."""

import re

from islands.lab.checker import Violation
from islands.lab.faults.fault import Struck
from islands.lab.faults.gaps import Gap
from islands.lab.faults.report import Picture, page, timeline
from islands.lab.faults.schedule import strikes_of
from islands.lab.faults.verdict import Control, Finding, Played, verdict_of
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.identities import Phase
from islands.protocol.tape.entry import Line
from islands.protocol.tape.learner_entries import Reported

OPTIONS = ChaosOptions(faults={"a & b": {"fault": "freeze", "who": "learner-1", "for_s": 3}})
STRUCK = Struck(strikes_of(OPTIONS)[0], 105.0, 108.0, 112.0)


def report(at_s: float, tokens: int, incarnation: str = "1.1") -> Line:
    """What learner-0 told of itself."""
    told = Reported(incarnation, Phase.STEPPING, tokens, 1000, [])
    return Line(at_s, "learner-0", told)


def test_all_that_was_found_is_on_the_page() -> None:
    """With the difference from the control, and with each broken promise in words."""
    found = Finding(STRUCK, Gap(0.03, 0.012, 0.018), 0.5, 0.6, 5.1, 1.25, kept_out=3)
    control = Control(100.0, 105.0, Gap(0.01, 0.002, 0.008), {"learner-0": 50.0, "learner-2": 49.0})
    played = Played((found,), control, (Violation("fence", "<late>"),), (), (), ("left out",))
    verdict = verdict_of(OPTIONS, played.findings, control, played.violations, played.left_out)
    shown = page(OPTIONS, played, verdict, "islands chaos x.yaml", "seed: 0")
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
        assert told in shown, told


def test_a_bar_lasts_from_report_to_report_in_which_tokens_were_added() -> None:
    """Not over a silence, not into another incarnation, and not while nothing is added."""
    lines = [
        *(report(100.0, 8), report(101.0, 16), report(102.0, 24), report(103.0, 24)),
        *(report(109.0, 80), report(110.0, 88), report(110.5, 8, "1.2"), report(111.0, 16, "1.2")),
    ]
    picture = Picture(("learner-0", "learner-1"), (100.0, 112.0), 105.0)
    drawn = timeline(picture, [STRUCK], lines)
    bars = re.findall(r'class="steps" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)
    second = picture.x(101.0) - picture.x(100.0)
    assert [float(x) for x, _ in bars] == [
        round(picture.x(at_s), 1) for at_s in (100.0, 109.0, 110.5)
    ]
    widths = [float(width) for _, width in bars]
    assert widths == [round(second * seconds, 1) for seconds in (2, 1, 0.5)]
    assert "a &amp; b: freeze of learner-1" in drawn
    assert drawn.count('class="victim"') == 1
