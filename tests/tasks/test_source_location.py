"""The place of an error is the user's own line, whatever it has passed through."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from islands.protocol.errors import DataError, TaskError, TaskFailedError
from islands.tasks.source_location import (
    SourceLocation,
    innermost,
    location_of,
    location_of_return,
    location_of_yield,
    task_error,
    task_failure,
)

SITE = "/venv/lib/python3.11/site-packages"
MINE, INSTALLED = (
    SourceLocation("/ana/model.py", 3, "loss"),
    SourceLocation(f"{SITE}/ours/m.py", 4, "f"),
)
JAX, FROZEN = (
    SourceLocation(f"{SITE}/jax/_src/api.py", 9, "jit"),
    SourceLocation("<frozen runpy>", 1, "run"),
)


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ([FROZEN, MINE, INSTALLED, JAX], MINE),
        ([FROZEN, JAX, INSTALLED, JAX], INSTALLED),
        ([FROZEN, JAX], None),
        ([SourceLocation(__import__("json").__file__ or "", 1, "loads")], None),
        ([], None),
    ],
)
def test_libraries_are_passed_over(
    frames: list[SourceLocation], found: SourceLocation | None
) -> None:
    assert innermost(frames) == found


def test_a_place_is_told_as_editors_open_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert str(MINE) == "/ana/model.py:3, in loss"
    monkeypatch.chdir(tmp_path)
    assert str(SourceLocation(str(tmp_path / "a" / "m.py"), 7, "init")) == "a/m.py:7, in init"


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        throw(error)
    return caught.value


def throw(error: Exception) -> None:
    raise error


def test_a_mistake_is_one_sentence_with_the_lines_behind_it() -> None:
    told = task_error(raised(ValueError("no such word\nand more")), "the task's loss failed")
    assert isinstance(told, TaskError)
    place = f"{location_of(told.__cause__ or told)}"
    assert place.endswith(", in throw")
    assert str(told) == f"{place}: ValueError: no such word; the task's loss failed"
    assert "raise error" in told.detail
    assert told.detail.startswith("Traceback (most recent call last)")


def test_a_sentence_of_ours_stays_as_it_is() -> None:
    error = DataError("the corpus is missing")
    assert task_error(raised(error), "x") is error
    assert task_failure(raised(error), "x") is error


def test_a_failure_of_the_users_code_may_pass_and_one_of_ours_is_a_bug() -> None:
    told = task_failure(raised(ConnectionError("reset")), "the task failed")
    assert isinstance(told, TaskFailedError)
    assert "ConnectionError: reset" in str(told)
    ours = KeyError("x")  # never raised: no frame of anybody's
    assert task_failure(ours, "the task failed") is ours


def test_the_line_of_a_yield_is_that_at_which_the_generator_stands() -> None:
    def batches() -> Iterator[int]:
        yield 1
        yield 2

    def listed() -> Iterator[int]:
        return iter([1])

    made = batches()
    lines = []
    for _ in made:
        place = location_of_yield(made, batches)
        assert place is not None
        lines.append(place.line)
    assert lines[1] == lines[0] + 1
    assert location_of_yield(listed(), listed) == location_of_return(listed)
    assert location_of_return(len) is None
