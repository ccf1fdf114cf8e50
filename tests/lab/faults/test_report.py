"""The table of a scenario has every figure."""

from islands.lab.faults.fault import Injected
from islands.lab.faults.gaps import Gap
from islands.lab.faults.report import HEADS, figures
from islands.lab.faults.schedule import injections_of
from islands.lab.faults.verdict import Control, Finding, verdict_of
from islands.lab.settings.chaos import ChaosOptions

OPTIONS = ChaosOptions(faults={"a & b": {"fault": "freeze", "who": "learner-1", "for_s": 3}})
STRUCK = Injected(injections_of(OPTIONS)[0], 105.0, 108.0, 112.0)


def test_all_that_was_found_is_in_the_table() -> None:
    found = Finding(STRUCK, Gap(0.03, 0.012, 0.018), 0.5, 0.6, 5.1, 1.25)
    control = Control(100.0, 105.0, Gap(0.01, 0.002, 0.008), {"learner-0": 50.0, "learner-2": 49.0})
    (judged,) = verdict_of(OPTIONS, (found,), control, ()).judged
    found_texts = figures(judged, control)
    assert found_texts == ("30.0 ms (+10.0)", "12.0 ms", "0.500", "", "0.60 s", "5.10 s", "1.25 s")
    assert len(found_texts) == len(HEADS)
    assert "others stepped at 0.500 of their rate; it must be 0.98" in " ".join(judged.broken)
