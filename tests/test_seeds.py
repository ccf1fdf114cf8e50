"""Tests run for the seeds and cases asked for, and a failure prints the line that replays it."""

from pathlib import Path

import pytest

from tests.environment import ROOT

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).with_name("conftest.py")
UNLUCKY = """
    def test_unlucky(seed):
        assert seed != 3
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with our conftest and one test that fails for seed 3."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile(test_luck=UNLUCKY)
    return pytester


def test_runs_as_many_seeds_as_asked(project: pytest.Pytester) -> None:
    """`--seeds 3` runs the seeds 0, 1 and 2."""
    project.runpytest_subprocess("--seeds", "3").assert_outcomes(passed=3)


def test_failure_names_the_line_that_replays_it(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--seeds", "5")
    result.assert_outcomes(passed=4, failed=1)
    line = "python -m pytest 'test_luck.py::test_unlucky[seed3]' --seed 3"
    result.stdout.fnmatch_lines([line.replace("[", "[[]")])
    again = project.runpytest_subprocess("test_luck.py::test_unlucky[seed3]", "--seed", "3")
    again.assert_outcomes(failed=1)


def test_one_seed_may_lie_beyond_the_quick_run(project: pytest.Pytester) -> None:
    """`--seed` takes any seed, whatever `--seeds` is."""
    project.runpytest_subprocess("--seed", "1999", "--seeds", "1").assert_outcomes(passed=1)


CASES = """
    import pytest

    @pytest.mark.quick("small")
    @pytest.mark.parametrize("size", ["small", "large", "huge"])
    def test_size(size):
        assert size == "small"
"""
REGISTERED = """
    [pytest]
    markers =
        long: runs later
        quick: runs now
"""


def test_cases_that_are_not_quick_are_long(project: pytest.Pytester) -> None:
    project.makeini(REGISTERED)
    project.makepyfile(test_sizes=CASES)
    project.runpytest_subprocess("-m", "not long").assert_outcomes(
        passed=4, failed=1, deselected=10
    )


def test_a_mark_that_names_no_case_is_refused(project: pytest.Pytester) -> None:
    """Else nothing of the test would run before a change is proposed."""
    project.makeini(REGISTERED)
    project.makepyfile(test_sizes=CASES.replace('quick("small")', 'quick("tiny")'))
    result = project.runpytest_subprocess("-m", "not long")
    result.stdout.fnmatch_lines(["*no case of test_size is quick*"])
