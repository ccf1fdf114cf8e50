"""Which member's values are taken back where the journal is lost."""

from dataclasses import replace

import pytest

from islands.protocol.identities import FragmentIndex, LearnerName, Version
from islands.protocol.messages.training import FragmentRequest, FragmentSeed, Kept
from islands.protocol.settings.run import Timing
from islands.protocol.syncer.events import InitialRead, LinkOpened, SeedArrived
from islands.protocol.syncer.versions import newest_of, waits_s
from tests.syncer.bench import Bench


def kept(*held: str) -> tuple[Kept, ...]:
    """Values such as `3x`: version 1.3 with a digest x."""
    return tuple(Kept(Version(1, int(one[:-1])), one[-1]) for one in held)


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ({"a": ("3x", "4y"), "b": ("3x", "4y")}, "a"),
        ({"a": ("3x", "4y"), "b": ("4z", "4y")}, "b"),
        ({"a": ("3x", "5y"), "b": ("4z", "4z"), "c": ("4z", "5y")}, "c"),
        ({"a": ("4!", "4!"), "b": ("4x", "4y"), "c": ("4x", "4y")}, "b"),
        ({"a": ("4!", "4y"), "b": ("4x", "4y"), "c": ("4x", "3y")}, "b"),
        ({"z": ("0x",)}, "z"),
    ],
)
def test_the_newest_values_are_chosen_and_of_one_version_those_of_most(
    offers: dict[str, tuple[str, ...]], chosen: str
) -> None:
    """Of members that differ in one version, the one whose value the others have, too."""
    told = {LearnerName(name): kept(*held) for name, held in offers.items()}
    assert newest_of(told) == chosen
    assert newest_of(dict(reversed(told.items()))) == chosen


def test_the_wait_is_long_enough_to_redial_supervisor_and_syncer() -> None:
    """It scales with the patience of the run, as the back-off does."""
    assert waits_s(Timing()) == 10.0
    assert waits_s(Timing(patience=0.2)) == pytest.approx(2.0)


def returns(bench: Bench, name: str, *held: str) -> None:
    """A member says hello that has kept such values."""
    bench.hello(name)
    hello = replace(bench.hello_of(bench.learners[name]), kept=kept(*held))
    connection = bench.connections[name] = bench.connections[name] + 1
    bench.do(LinkOpened(hello, connection, trusted=True))


def sends(bench: Bench, *digests: str) -> None:
    """The member that is asked sends these values."""
    for index, digest in enumerate(digests):
        seeding = bench.core.versions.seeding
        assert seeding is not None
        who = seeding.name, seeding.incarnation
        bench.do(SeedArrived(FragmentSeed(1, FragmentIndex(index), *who, digest), intact=True))


def asked(bench: Bench) -> str:
    """The member that is asked for version 0; empty if none is."""
    return "" if bench.core.versions.seeding is None else bench.core.versions.seeding.name


def test_whoever_sends_other_values_than_it_told_is_believed_no_more() -> None:
    """The next member's are taken, and then those of any learner."""
    bench = Bench(returns_s=10.0)
    bench.hello("ana")
    returns(bench, "ben", "9x", "9y")
    returns(bench, "cleo", "7x", "7y")
    bench.tick(5.0)
    assert asked(bench) == ""
    bench.tick(5.0)
    assert asked(bench) == "ben"
    sends(bench, "x", "z")
    bench.tick(2.5)
    assert asked(bench) == "cleo"
    sends(bench, "x", "y")
    bench.journal()
    assert [one.digest for one in bench.core.versions.published if one is not None] == ["x", "y"]
    assert bench.state.version(0) == Version(1, 0)


def test_who_keeps_silent_does_not_keep_a_run_from_beginning() -> None:
    """A member that promises values and sends none is given up, as any learner is."""
    bench = Bench(returns_s=10.0)
    bench.hello("ana")
    returns(bench, "ben", "9x", "9y")
    seen: dict[str, None] = {}
    for _ in range(400):
        bench.tick(1.0)
        seen[asked(bench)] = None
    assert list(seen) == ["", "ben", "ana"]


def test_a_version_of_its_own_is_given_up_for_nothing() -> None:
    """Whatever a member claims to have kept: a syncer with values has no use for others."""
    bench = Bench(returns_s=10.0)
    bench.hello("ana")
    bench.tick(10.0)
    sends(bench, "a", "b")
    bench.journal()
    returns(bench, "ben", "999x", "999y")
    for _ in range(100):
        bench.tick(1.0)
        assert bench.sent(FragmentRequest) == []
    assert [one.digest for one in bench.core.versions.published if one is not None] == ["a", "b"]


@pytest.mark.parametrize("held", [(), ("9x", "9y")])
def test_a_file_gives_version_0_unless_members_have_newer_values(held: tuple[str, ...]) -> None:
    """The members are waited for, although the file was read long before."""
    bench = Bench(initial=True, returns_s=10.0)
    bench.do(InitialRead(("f", "g")))
    bench.hello("ana")
    if held:
        returns(bench, "ben", *held)
    bench.tick(9.0)
    assert bench.core.versions.seeding is None
    bench.tick(1.0)
    if held:
        sends(bench, "x", "y")
    bench.journal()
    digests = [one.digest for one in bench.core.versions.published if one is not None]
    assert digests == (["x", "y"] if held else ["f", "g"])


def test_values_that_are_not_of_every_fragment_are_not_taken_back() -> None:
    """A member in the middle of its first adoption is a learner like any other."""
    bench = Bench(returns_s=10.0)
    returns(bench, "ana", "9x")
    assert bench.core.members.learners[LearnerName("ana")].kept == ()
