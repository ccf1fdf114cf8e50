"""What a peer says is shown, and not obeyed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.plain_text import plain


@pytest.mark.parametrize("text", ["", "a reason", "\u4f60\u597d", "100 % [bold]", "\U0001f4a9"])
def test_what_can_be_printed_stays(text: str) -> None:
    """Also letters of other scripts, and what some program would take for markup."""
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("one\ntwo\r", r"one\ntwo\r"),
        ("a\0b", r"a\x00b"),
        ("a\u202eb", r"a\u202eb"),
        ("\x9b31m", r"\x9b31m"),
        ("\u2028", r"\u2028"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_what_is_long_is_cut_and_says_so() -> None:
    assert plain("x" * 100, 10) == "xxxxxxxxxx\u2026 (100 characters)"
    assert len(plain("\0" * 1_000_000)) < 2100


@given(st.text())
def test_whatever_is_sent_is_one_line_that_can_be_printed(text: str) -> None:
    assert plain(text).isprintable()
