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


def test_a_command_is_copied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    command = "    run --name a --folder /a/path/that/is/long"
    assert fitted(f"in another terminal:\n{command}", Terminal()).split("\n")[1:] == [command]


def test_a_word_is_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    address = "http://127.0.0.1:7070/page/#0123456789"
    assert fitted(f"watch it: {address}", Terminal()).split("\n") == ["watch it:", address]
