"""Entries of the tape as sentences for a person."""

from string import Formatter

import pytest

from islands.protocol.identities import LearnerName, Role, Status
from islands.protocol.messages.control import Verb
from islands.protocol.tape import learner_entries as learners
from islands.protocol.tape import member_entries as members
from islands.protocol.tape.entry import Entry, Logged
from islands.protocol.tape.round_entries import Closing, NothingMerged, WaitsFor
from islands.run.records.tape_sentences import WORDS, sentence

WAITED_FOR = {LearnerName("a"): "is not heard", LearnerName("b"): "was asked"}
WAITS = "the run waits for a is not heard; b was asked"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (members.Admitted("a", Role.LEARNER, "1.1"), "a joined"),
        (members.Admitted("a", Role.OBSERVER, "1.1"), ""),
        (members.Evicted("a", "1.1", "silent"), "a was evicted: silent"),
        (members.StatusChanged("a", Status.SUSPECT), "a is not heard"),
        (members.StatusChanged("a", Status.LEFT), ""),
        (members.Killed("a"), "a was killed"),
        (learners.MomentsFresh("no donor", 0.0), ""),
        (
            learners.MomentsFresh("those of b are of another optimizer", 0.0),
            "s begins with fresh moments of its optimizer: those of b are of another optimizer",
        ),
        (
            learners.MomentsTaken(donor="b", pieces=2, seconds=1.0, waited_s=0.0),
            "s took its optimizer's moments from b",
        ),
        (
            members.Adapted("a", "fp4", "it took too long", 9, 1.0, 9.0, 0.1, 0.5),
            "a sends fp4: it took too long",
        ),
        (members.ProcessEnded("a", ""), ""),
        (members.ProcessEnded("a", error="exit 1"), ""),
        (members.ProcessEnded("a", "exit 1"), "the process of a ended: exit 1"),
        (members.Paused(), "the run is paused"),
        (members.StoodStill(2.25), "s stood still for 2.2 s"),
        (members.Resumed(), "the run goes on"),
        (WaitsFor(2, WAITED_FOR), WAITS),
        (WaitsFor(9, WAITED_FOR), f"{WAITS}; and for 7 more"),
        (
            NothingMerged(9.8, 1, 1, "auto", {"a": "asked 9.9 s ago", "b": "left out"}),
            "nothing was merged for 10 s: a: asked 9.9 s ago; b: left out",
        ),
    ],
)
def test_an_entry_is_told_if_a_person_acts_on_it(entry: Entry, told: str) -> None:
    assert sentence("s", entry) == told


def test_an_operators_wish_is_told_with_its_answer() -> None:
    told = [
        sentence(
            "s", members.Commanded(done=True, told="done", verb=verb, target=target, count=1, by=by)
        )
        for verb, target, by in ((Verb.DRAIN, "a", "operator"), (Verb.PAUSE, "", "ana"))
    ]
    assert told == ["operator: drain a: done", "operator ana: pause: done"]


def test_who_was_here_before_is_back() -> None:
    assert sentence("s", members.Admitted("a", Role.LEARNER, "1.1"), known=True) == "a is back"


@pytest.mark.parametrize("kind", WORDS)
def test_a_sentence_names_fields_of_its_kind(kind: type[Entry]) -> None:
    named = [field for _, field, _, _ in Formatter().parse(WORDS[kind]) if field]
    fields = [f"0.{field}" for field in kind.__struct_fields__]
    assert [field for field in named if field not in (*fields, "actor")] == []
    assert issubclass(kind, Logged)


def test_an_end_is_told_in_words() -> None:
    told = sentence("s", Closing("tokens"))
    assert told == "the run is ending: its budget of tokens is spent"
    assert sentence("s", Closing("enough")) == "the run is ending: enough"


def test_text_from_afar_is_one_plain_line() -> None:
    assert "\x1b" not in sentence("s", members.Left("a\x1b[2J", "1.1", "x\ny"))
    assert "\n" not in sentence("s", members.Left("a{0}", "1.1", "x\ny{actor}"))
