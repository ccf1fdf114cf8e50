"""A fragment's journey is put together from tapes, in whatever order they are read."""

import pytest

from islands.sinks.journeys import OPEN_MOST, Journeys, Span
from islands.sinks.sink import Row


def passage(number: int, at_s: float) -> list[Row]:
    """The entries of one round of fragment 0, by the processes that write them."""
    version = f"1.{number + 1}"
    ticket = f"ana/1.1@1:{number}"
    round_ = {"round": number, "fragment": 0}
    entries = [
        ("syncer", {"kind": "opened", **round_}),
        ("ana", {"kind": "contribute", "ticket": ticket, "fragment": 0, "tokens": 40}),
        ("syncer", {"kind": "arrived", "ticket": ticket, "tokens": 40}),
        ("syncer", {"kind": "closed", **round_}),
        ("syncer", {"kind": "merged", **round_, "version": version}),
        ("syncer", {"kind": "committed", "fragment": 0, "version": version}),
        ("ana", {"kind": "adopted", "fragment": 0, "version": version}),
    ]
    return [
        {"t": at_s + step, "actor": actor, **fields} for step, (actor, fields) in enumerate(entries)
    ]


def test_a_journey_has_all_its_stretches() -> None:
    """One follows on the other, from the pull to its application."""
    journeys = Journeys()
    over = [
        each
        for number in range(3)
        for row in passage(number, 10.0 * number)
        for each in journeys.add(row)
    ]
    assert [journey.version for journey in over] == ["1.1"]
    assert list(over[0].spans()) == [
        Span("pull", 0.0, 1.0, "ana"),
        Span("send", 1.0, 2.0, "ana", 40),
        Span("collect", 0.0, 3.0),
        Span("merge", 3.0, 4.0),
        Span("publish", 4.0, 5.0),
        Span("apply", 5.0, 6.0, "ana"),
    ]
    assert [journey.version for journey in journeys.rest()] == ["1.2", "1.3"]
    assert not journeys.rounds


@pytest.mark.parametrize("learner_first", [False, True])
def test_the_order_of_processes_does_not_matter(*, learner_first: bool) -> None:
    """A learner's tape may be read before the syncer's, or long after it."""
    rows = [row for number in range(2) for row in passage(number, 10.0 * number)]
    learner = [row for row in rows if row["actor"] == "ana"]
    syncer = [row for row in rows if row["actor"] != "ana"]
    first, second = (learner, syncer) if learner_first else (syncer, learner)
    journeys = Journeys()
    for row in (*first, *second):
        assert not journeys.add(row)
    names = [[span.name for span in each.spans()] for each in journeys.rest()]
    sent = ["pull", "send"] if learner_first else ["pull"]
    assert all(found[: len(sent)] == sent and found[-1] == "apply" for found in names)


def test_journeys_without_an_end_are_bounded() -> None:
    """Neither rounds that are never published nor versions that nobody merged stay."""
    journeys = Journeys()
    for number in range(OPEN_MOST + 50):
        journeys.add({"t": 1.0, "kind": "opened", "round": number, "fragment": 0})
        row = {"t": 1.0, "kind": "adopted", "fragment": 0, "version": f"1.{number}"}
        journeys.add(row)
    assert len(journeys.rounds) == len(journeys.adopted) == OPEN_MOST
    journeys.add({"t": 1.0, "kind": "abandoned", "round": OPEN_MOST})
    assert len(journeys.rounds) == OPEN_MOST - 1
