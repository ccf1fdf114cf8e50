"""Sentences that fit a terminal."""

import io

import pytest

from islands.run.hosting.wrapping import fitted


class Terminal(io.StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        return True


def test_only_a_terminal_has_its_lines_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    sentence = "a sentence that is longer than twenty columns"
    assert fitted(sentence, io.StringIO()) == sentence
    lines = fitted(sentence, Terminal()).split("\n")
    assert " ".join(lines) == sentence
    assert max(map(len, lines)) <= 20


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("    islands plot runs", ["    islands plot runs"]),
        ("    run --name a --folder b", ["    run --name a \\", "        --folder b"]),
        (
            "    run --flag --folder /long/path",
            ["    run --flag \\", "        --folder /long/path"],
        ),
        ("    run /a/path/that/is/too/long", ["    run \\", "        /a/path/that/is/too/long"]),
    ],
)
def test_a_command_goes_on_after_a_backslash(
    command: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "22")
    assert fitted(command, Terminal()).split("\n") == lines
