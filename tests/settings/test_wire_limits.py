"""A run's own messages fit into its links, whatever its layout, and what cannot fit is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest

from islands.layout.leaves import Fragment, Layout, Leaf, layout_of
from islands.protocol import identities
from islands.protocol.errors import SettingsError, UserError
from islands.protocol.messages import training
from islands.protocol.messages.registry import MESSAGE_TYPES, PROTOCOL
from islands.protocol.settings.choices import Pattern
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.leases import LEASES_HELD_MAX
from islands.settings.run_spec import RunPlan, RunSpec
from islands.settings.wire_limits import FRAGMENTS_MAX, check_told, limits_of
from messaging.codec.frames import CHUNK_PREFIX_BYTES, Assembler, Codec, chunk_parts, head_frame
from messaging.codec.limits import Limits
from messaging.envelope import Envelope

MOST = 2**63 - 1
INCARNATION = identities.Incarnation(MOST, MOST)
VERSION = identities.Version(MOST, MOST)
NAME = identities.LearnerName("n" * 64)
LEASES = tuple(identities.Lease(MOST, MOST, MOST) for _ in range(LEASES_HELD_MAX))
GIB = 2**30


def layout(fragments: int, fragment_bytes: int = 1 << 16) -> Layout:
    """A layout by shape alone: one leaf per fragment."""
    size = fragment_bytes // 4
    leaves = [Leaf(f"layers/{index}", (size,)) for index in range(fragments)]
    made = [Fragment(i, (), size) for i in range(fragments)]
    return layout_of(leaves, made, Pattern.BALANCED, {})


def progress(fragments: int) -> training.Progress:
    """The longest report that a learner can make."""
    one = training.FragmentProgress(VERSION, MOST, MOST, MOST)
    told = (one,) * fragments
    return training.Progress(
        NAME, INCARNATION, identities.Phase.COMPILING, MOST, MOST, 1 / 3, MOST, MOST, told, LEASES
    )


def hello(fragments: int) -> training.Hello:
    return training.Hello(
        protocol=PROTOCOL,
        run="r" * 64,
        role=identities.Role.SUPERVISOR,
        name=NAME,
        incarnation=INCARNATION,
        credential="c" * 512,
        fingerprint="f" * 32,
        progress=progress(fragments),
        digests=("d" * 32,) * fragments,
        epoch_seen=MOST,
    )


LONGEST: dict[str, Callable[[int], object]] = {
    "hello": hello,
    "progress": progress,
    "welcome": lambda count: training.Welcome(MOST, (VERSION,) * count, NAME),
    "grant": lambda _: training.LeaseGranted(MOST, INCARNATION, MOST, LEASES),
}


@pytest.mark.parametrize("fragments", [1, 600, 4096])
@pytest.mark.parametrize("longest", LONGEST.values(), ids=LONGEST)
def test_the_longest_reports_fit_at_any_number_of_fragments(
    longest: Callable[[int], object], fragments: int
) -> None:
    limits = limits_of(layout(fragments))
    codec = Codec(MESSAGE_TYPES, limits)
    body = longest(fragments)
    data = codec.encode(Envelope("a" * 64, "b" * 64, MOST, body))
    assert codec.decode(data)[0].body == body
    assert len(head_frame(data, 0)) <= limits.frame_bytes


def test_a_small_run_keeps_small_limits() -> None:
    limits = limits_of(layout(1))
    assert limits.payload_bytes == Limits().payload_bytes
    assert limits.frame_bytes == Limits().frame_bytes
    assert limits.header_bytes < 1.01 * Limits().header_bytes


@dataclass(frozen=True, slots=True)
class Repeated:
    """A buffer as large as one likes that is the same few bytes over and over."""

    nbytes: int
    block: memoryview

    def cast(self, _: str) -> "Repeated":
        return self

    def toreadonly(self) -> memoryview:
        return self.block

    def __getitem__(self, where: slice) -> memoryview:
        start, stop = int(where.start), min(int(where.stop), self.nbytes)
        return self.block[: stop - start]


@pytest.mark.parametrize("fragment_bytes", [1 << 16, 4 * GIB + (1 << 16), 400 * GIB])
def test_a_fragment_of_any_size_can_be_announced(fragment_bytes: int) -> None:
    codec = Codec(MESSAGE_TYPES, limits_of(layout(1, fragment_bytes)))
    payload = (cast("memoryview", Repeated(fragment_bytes, memoryview(b""))),)
    update = training.FragmentUpdate(
        MOST, identities.FragmentIndex(0), VERSION, MOST, "d" * 32, 0.5, None
    )
    envelope = Envelope("a", "b", 1, update, payload=payload)
    _, sizes = codec.decode(codec.encode(envelope))
    assert sizes == (fragment_bytes,)


def test_a_fragment_beyond_32_bits_is_carried_chunk_by_chunk() -> None:
    size = 4 * GIB + (1 << 20)
    codec = Codec(MESSAGE_TYPES, limits_of(layout(1, size)))
    block = memoryview(bytearray(1 << 19))
    there = cast("memoryview", Repeated(size, block))
    here = cast("memoryview", Repeated(size, memoryview(bytearray(1 << 19))))
    seed = training.FragmentSeed(1, identities.FragmentIndex(0), NAME, INCARNATION, "d" * 32)
    envelope = Envelope("a", "b", 7, seed, payload=(there,))
    assembler = Assembler(codec, lambda _, sizes: [here] if sizes == (size,) else [])
    numbers = iter(range(1, 1 << 20))
    assert assembler.feed(head_frame(codec.encode(envelope), 0)) is None
    arrived: list[Envelope] = []
    for prefix, data in chunk_parts(envelope, lambda: (1 << 19) + CHUNK_PREFIX_BYTES, numbers):
        assembler.begin_chunk(prefix, data.nbytes)[:] = data
        whole = assembler.end_chunk()
        arrived += [] if whole is None else [whole]
    assert [each.body for each in arrived] == [seed]


def test_more_fragments_than_a_report_can_name_are_refused() -> None:
    with pytest.raises(SettingsError, match=f"{FRAGMENTS_MAX + 1} fragments.* {FRAGMENTS_MAX} at"):
        limits_of(layout(FRAGMENTS_MAX + 1))


def test_a_run_that_cannot_be_told_is_refused() -> None:
    check_told(RunSpec(RunSettings()).encode(), RunPlan(layout(1), 64).encode())
    with pytest.raises(UserError, match="task_settings"):
        check_told("x" * 100_000, b"")
    with pytest.raises(UserError, match="stack the layers"):
        check_told("", bytes(Limits().payload_bytes + 1))
