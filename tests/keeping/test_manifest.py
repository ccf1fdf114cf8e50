"""What a manifest may say, when a checkpoint is due, and which of them stay."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.files.whole_files import sealed
from islands.keeping.manifest import (
    FORMAT,
    KEPT_LEAST,
    MANIFEST,
    Manifest,
    Retention,
    Schedule,
    StoredFile,
    decode,
    digest_of,
)
from islands.protocol.errors import DamagedError

GOOD = digest_of([b"some", b"thing"])


def manifest(
    merges: int = 4, at_s: float = 0.0, epoch: int = 1, files: dict[str, StoredFile] | None = None
) -> Manifest:
    name = "fragment-00000.a.safetensors"
    return Manifest(
        format=FORMAT,
        run="run",
        origin="first",
        fingerprint="f00d",
        epoch=epoch,
        merges=merges,
        tokens=100 * merges,
        saved_at_s=at_s,
        reason="a test",
        files={name: GOOD, **(files or {})},
    )


def test_a_manifest_is_what_was_written() -> None:
    assert decode(manifest().encode(), "there") == manifest()
    assert manifest().size_bytes == len(b"something")


@pytest.mark.parametrize("at", [0, 40, -20])
def test_a_flipped_bit_is_noticed(at: int) -> None:
    text = bytearray(manifest().encode())
    text[at] ^= 1
    with pytest.raises(DamagedError, match="there is damaged"):
        decode(bytes(text), "there")


@pytest.mark.parametrize(
    "name",
    ["../key", "/etc/passwd", ".hidden", "a/b.json", MANIFEST, "", "no_ending", "a..b", "ä.b"],
)
def test_a_manifest_names_files_of_its_own_folder_alone(name: str) -> None:
    with pytest.raises(DamagedError, match="which is no file of a checkpoint"):
        decode(manifest(files={name: GOOD}).encode(), "there")


@pytest.mark.parametrize("wrong", [StoredFile(-1, GOOD.blake3), StoredFile(9, "ABC")])
def test_a_size_and_digest_that_no_file_has_are_refused(wrong: StoredFile) -> None:
    with pytest.raises(DamagedError, match=r"a\.b has no possible size and digest"):
        decode(manifest(files={"a.b": wrong}).encode(), "there")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"format": 1}', "is no manifest of a checkpoint"),
        (msgspec.json.encode(msgspec.structs.replace(manifest(), format=99)), "reads 1; use the"),
    ],
)
def test_what_this_version_cannot_read_is_named(content: bytes, sentence: str) -> None:
    with pytest.raises(DamagedError, match=sentence):
        decode(sealed(content), "there")


def kept(retention: Retention, *at_s: float) -> list[int]:
    held = [manifest(merges, at) for merges, at in enumerate(at_s)]
    gone = list(retention.outdated(held))
    return [each.merges for each in held if each not in gone]


def test_the_newest_stay_and_one_of_each_hour() -> None:
    times = [600.0 * number for number in range(20)]
    assert kept(Retention(3), *times) == [17, 18, 19]
    assert kept(Retention(3, 3600.0), *times) == [0, 6, 12, 17, 18, 19]
    assert kept(Retention(3), 5.0) == [0]


def test_a_run_that_went_back_keeps_what_it_made_since() -> None:
    before = [manifest(merges, epoch=1) for merges in (10, 20, 30)]
    since = [manifest(merges, epoch=3) for merges in (12, 14)]
    assert list(Retention(2).outdated([*before, *since])) == before


@given(
    st.integers(-3, 9),
    st.none() | st.floats(0.1, 1e6),
    st.lists(st.floats(0.0, 1e9), min_size=1, max_size=12),
)
def test_two_always_stay_whatever_the_clock_does(
    keep: int, every_s: float | None, at_s: list[float]
) -> None:
    found = kept(Retention(keep, every_s), *at_s)
    least = min(len(at_s), max(KEPT_LEAST, keep))
    assert found[-least:] == list(range(len(at_s)))[-least:]


def test_a_checkpoint_is_due_after_merges_or_time() -> None:
    merges = Schedule(every_merges=10)
    assert [merges.due(count, 1e9) is None for count in (0, 9, 10, 25)] == [
        True,
        True,
        False,
        False,
    ]
    merges.taken(25, 0.0)
    assert merges.due(34, 0.0) is None
    assert merges.due(35, 0.0) == "every 10 merges"
    time = Schedule(every_s=60.0)
    assert time.due(0, 5.0) is None, "nothing was merged"
    assert time.due(1, 5.0) is not None, "each start takes one"
    time.taken(1, 5.0)
    assert time.due(9, 64.9) is None
    assert time.due(1, 65.0) is None, "nothing was merged since"
    assert time.due(2, 65.0) == "every 60 s"


def test_who_asks_gets_one_though_nothing_was_merged() -> None:
    never = Schedule()
    assert never.due(10**6, 1e9) is None
    never.ask("an operator")
    assert never.due(0, 0.0) == "an operator"
    never.taken(0, 0.0)
    assert never.due(0, 0.0) is None
