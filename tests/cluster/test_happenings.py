"""Entries of the tape as sentences for a person."""

import pytest

from islands.actors.tape import LOGGED
from islands.cluster.happenings import sentence


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("admitted", {"name": "a", "role": "learner"}, "a joined"),
        ("admitted", {"name": "a", "role": "observer"}, ""),
        ("evicted", {"name": "a", "reason": "silent"}, "a was evicted: silent"),
        ("status", {"name": "a", "status": "suspect"}, "a is not heard"),
        ("killed", {"name": "a"}, "a was killed"),
        ("moments_fresh", {"reason": "no donor", "waited_s": 0.0}, ""),
        ("moments_taken", {"from": "b", "pieces": 2}, "s took its moments from b"),
        ("process_ended", {"name": "a", "reason": ""}, ""),
        ("process_ended", {"name": "a", "reason": "exit 1"}, "the process of a ended: exit 1"),
        ("paused", {}, "the run is paused"),
        ("paused", {"gap_s": 2.25}, "s stood still for 2.2 s"),
        ("resumed", {}, "the run goes on"),
        ("swinging", {"told": "too long"}, ""),
    ],
)
def test_an_entry_is_told_if_a_person_acts_on_it(
    kind: str, fields: dict[str, object], told: str
) -> None:
    """In words, without fields that only a search needs; warnings are shown elsewhere."""
    assert sentence("s", kind, fields) == told


def test_an_operators_wish_is_told_with_its_answer() -> None:
    """Most wishes are about the whole run, and name nobody."""
    told = [
        sentence("s", "commanded", {"verb": verb, "target": target, "told": "done"})
        for verb, target in (("drain", "a"), ("pause", ""))
    ]
    assert told == ["operator: drain a: done", "operator: pause: done"]


def test_who_was_here_before_is_back() -> None:
    """A restarted learner did not join for the first time."""
    assert sentence("s", "admitted", {"name": "a", "role": "learner"}, known=True) == "a is back"


@pytest.mark.parametrize("kind", sorted(LOGGED - {"paused", "nothing_merged"}))
def test_an_entry_without_fields_harms_nothing(kind: str) -> None:
    """Whoever wrote it, whatever it lacks."""
    assert "{" not in sentence("s", kind, {})


def test_an_end_is_told_in_words() -> None:
    """The word by which the program knows it is none for a person."""
    told = sentence("s", "closing", {"reason": "tokens"})
    assert told == "the run is ending: its budget of tokens is spent"
    assert sentence("s", "closing", {"reason": "enough"}) == "the run is ending: enough"


def test_text_from_afar_is_one_plain_line() -> None:
    """A peer's note moves no cursor and makes no line of its own."""
    assert "\x1b" not in sentence("s", "left", {"name": "a\x1b[2J", "reason": "x\ny"})
    assert "\n" not in sentence("s", "left", {"name": "a", "reason": "x\ny"})
