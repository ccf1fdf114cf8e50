"""What the store says of a payload, and what it keeps of it."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.lab.toys.toy import NumpyTrainer
from islands.numerics.codecs import QUANTIZERS, decode, encode
from islands.numerics.merge import OuterState
from islands.numerics.norms import measure
from islands.numerics.outer import Sgd, outer_optimizer
from islands.protocol.errors import UserError
from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Ticket,
    Version,
)
from islands.protocol.messages.training import Contribution, FragmentSeed
from islands.protocol.settings.choices import MergeRule, Precision, UpdatePrecision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge, MergePart
from islands.protocol.syncer.contribution_admission import refusal
from islands.protocol.syncer.plausibility import Check
from islands.syncer.value_store import ValueStore
from messaging.codec.tensors import as_buffer, digest

LAYOUT = NumpyTrainer(2).layout
SIZE = LAYOUT.fragments[0].size
ANA, BEN = LearnerName("ana"), LearnerName("ben")
WHO = Incarnation(1, 1)
GOOD = np.arange(SIZE, dtype=np.float32)
WHOLE = [np.zeros(fragment.size, np.float32) for fragment in LAYOUT.fragments]
NOTHING = Check(schema_ok=False, digest_ok=False, finite=False, norm=0.0)


def store(**changes: object) -> ValueStore:
    settings = replace(RunSettings(fragments=2), **changes)  # type: ignore[arg-type]
    return ValueStore(settings, LAYOUT, outer_optimizer(settings.outer))


def contribution(values: NDArray[np.generic], **changes: object) -> Contribution:
    ticket, base = Ticket(1, 0, ANA, WHO), Version(1, 0)
    encoded = values.dtype.name, digest(as_buffer(values))
    said = Contribution(ticket, FragmentIndex(0), base, 1, 8, 8, *encoded)
    return replace(said, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", QUANTIZERS)
def test_every_precision_is_accepted_from_any_learner(precision: Precision) -> None:
    sent = encode(GOOD, precision)
    payload = (as_buffer(sent),)
    said = contribution(GOOD, precision=precision.value, digest=digest(payload[0]))
    check, measured = store().inspect(said, payload)
    assert (check.schema_ok, check.finite) == (True, True)
    assert measured is not None
    np.testing.assert_array_equal(measured.values, decode(sent, GOOD.size, precision))
    check, measured = store().inspect(said, (payload[0][:-1],))
    assert (check.schema_ok, measured) == (False, None)
    broken = as_buffer(encode(np.where(np.arange(SIZE) == 3, np.float32(np.inf), GOOD), precision))
    said = contribution(GOOD, precision=precision.value, digest=digest(broken))
    assert not store().inspect(said, (broken,))[0].finite


def test_positions_that_no_encoder_sends_are_told_in_one_sentence() -> None:
    sent = encode(GOOD, "top_k", share=2 / SIZE)
    sent[:3] = 255, 255, 255
    said = contribution(GOOD, precision="top_k", digest=digest(as_buffer(sent)))
    check, measured = store(top_k_share=2 / SIZE).inspect(said, (as_buffer(sent),))
    assert (check.schema_ok, measured) == (False, None)
    refused = refusal(check, untrue=None, ticket_open=True, stale=None)
    assert refused is not None
    assert (refused.fate, refused.wrong) == (Fate.REJECTED, True)
    assert refused.reason == (
        "positions of a sparse contribution must ascend in each block of 4,096, and be below "
        f"{SIZE:,} in all: some are not"
    )


def test_the_share_that_is_sent_is_that_of_the_run() -> None:
    sent = encode(GOOD, "top_k", share=2 / SIZE)
    said = contribution(GOOD, precision="top_k", digest=digest(as_buffer(sent)))
    check, _ = store(top_k_share=2 / SIZE).inspect(said, (as_buffer(sent),))
    assert check.schema_ok
    check, _ = store(top_k_share=4 / SIZE).inspect(said, (as_buffer(sent),))
    assert not check.schema_ok


def test_a_damaged_contribution_is_not_kept() -> None:
    damaged = GOOD.copy()
    damaged.view(np.uint32)[5] ^= 1
    check, measured = store().inspect(contribution(GOOD), (as_buffer(damaged),))
    assert (check.schema_ok, check.digest_ok, measured) == (True, False, None)


@pytest.mark.parametrize(
    ("said", "payload"),
    [
        (contribution(GOOD, fragment=FragmentIndex(2)), (as_buffer(GOOD),)),
        (contribution(GOOD, fragment=FragmentIndex(-1)), (as_buffer(GOOD),)),
        (contribution(GOOD, precision="bfloat16"), (as_buffer(GOOD),)),
        (contribution(GOOD[:-1]), (as_buffer(GOOD[:-1]),)),
        (contribution(GOOD), ()),
        (contribution(GOOD), (as_buffer(GOOD), as_buffer(GOOD))),
    ],
    ids=["no such fragment", "below 0", "precision", "too short", "nothing", "two"],
)
def test_what_does_not_fit_the_layout_is_not_looked_at(
    said: Contribution, payload: tuple[memoryview, ...]
) -> None:
    assert store().inspect(said, payload) == (NOTHING, None)


def test_a_damaged_seed_is_not_taken() -> None:
    held = store()
    seed = FragmentSeed(1, FragmentIndex(0), ANA, WHO, digest(as_buffer(GOOD)))
    damaged = GOOD + np.float32(1)
    broken = np.full(SIZE, np.inf, np.float32)
    told = replace(seed, digest=digest(as_buffer(broken)))
    assert not held.keep_seed(seed, (as_buffer(damaged),))
    assert not held.keep_seed(seed, (as_buffer(GOOD[:-1]),))
    assert not held.keep_seed(told, (as_buffer(broken),))
    assert held.keep_seed(seed, (as_buffer(GOOD),))


def test_the_seed_that_was_journalled_is_the_one_that_is_installed() -> None:
    held = store()
    offered = [np.full(f.size, n, np.float32) for n in (1, 2) for f in LAYOUT.fragments]
    for index, value in enumerate(offered):
        said = digest(as_buffer(value))
        assert held.keep_seed(
            FragmentSeed(1, FragmentIndex(index % 2), ANA if index < 2 else BEN, WHO, said),
            (as_buffer(value),),
        )
    version = Version(1, 0)
    held.install_seed(version, tuple(digest(as_buffer(value)) for value in offered[:2]))
    assert [value[0] for value in held.published([version, version])] == [1, 1]


def test_one_seed_is_kept_per_fragment_and_sender() -> None:
    held = store()

    def offer(number: int, counter: int = 1) -> bool:
        value = np.full(SIZE, number, np.float32)
        said = digest(as_buffer(value))
        seed = FragmentSeed(1, FragmentIndex(0), ANA, Incarnation(1, counter), said)
        return held.keep_seed(seed, (as_buffer(value),))

    assert [offer(1), offer(1), *map(offer, range(2, 9))] == [True, True] + [False] * 7
    assert [offer(2, counter=2), offer(3, counter=2)] == [True, False]


def test_an_initial_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="has 1 fragments, the run has 2"):
        store().keep_initial(WHOLE[:1])
    with pytest.raises(UserError, match="fragment 1"):
        store().keep_initial([WHOLE[0], WHOLE[1][:-1]])
    assert len(store().keep_initial(WHOLE)) == 2


def test_the_first_answer_over_a_link_is_the_one_that_is_merged() -> None:
    held = store(outer=OuterSettings(learning_rate=1.0, momentum=0.0))
    held.install_seed(Version(1, 0), held.keep_initial(WHOLE))
    ticket = Ticket(1, 0, ANA, WHO)
    for connection, factor in ((1, 1.0), (1, 2.0), (2, 3.0)):
        values = GOOD * np.float32(factor)
        _, measured = held.inspect(contribution(values), (as_buffer(values),))
        assert measured is not None
        held.hold(ticket, connection, measured)
    part = MergePart(ticket, 1, Version(1, 0), 1, 8, 1.0)
    held.merge(BeginMerge(0, 0, Version(1, 0), Version(1, 1), (part,)))
    assert np.array_equal(held.value(0, Version(1, 1)), -GOOD)


def test_old_values_are_freed_and_the_newest_stays() -> None:
    shelves = store(update_precision=UpdatePrecision.INT8)
    old, new = Version(1, 0), Version(1, 1)
    shelves.restore(0, old, {"value": GOOD, "momentum": np.zeros_like(GOOD)})
    units = LAYOUT.fragments[0].units(RunSettings().merge)
    shelves.hold(Ticket(1, 0, ANA, WHO), 1, measure(GOOD, units))
    part = MergePart(Ticket(1, 0, ANA, WHO), 1, old, 1, 8, 1.0)
    shelves.merge(BeginMerge(0, 0, old, new, (part,)))
    assert shelves.value(0, old) is not None
    before = shelves.journal_arrays(0, new)
    shelves.release(0, new)
    with pytest.raises(KeyError):
        shelves.value(0, old)
    after = shelves.journal_arrays(0, new)
    assert before.keys() == after.keys() == {"value", "momentum", "remainder"}
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def test_a_seed_leaves_the_buffer_that_it_arrived_in() -> None:
    shelves = store()
    arrived = bytearray(as_buffer(GOOD))
    seed = FragmentSeed(1, FragmentIndex(0), ANA, WHO, digest(memoryview(arrived)))
    assert shelves.keep_seed(seed, (memoryview(arrived).toreadonly(),))
    arrived[:] = bytes(len(arrived))
    other_value = np.ones(LAYOUT.fragments[1].size, np.float32)
    other = FragmentSeed(1, FragmentIndex(1), ANA, WHO, digest(as_buffer(other_value)))
    assert shelves.keep_seed(other, (as_buffer(other_value),))
    shelves.install_seed(Version(1, 0), (seed.digest, other.digest))
    np.testing.assert_array_equal(shelves.value(0, Version(1, 0)), GOOD)


class CountingSgd(Sgd):
    made: ClassVar[list[int]] = []

    def init(self, value: NDArray[np.float32]) -> OuterState:
        self.made.append(value.size)
        return super().init(value)


def test_the_optimizers_state_is_made_where_a_seed_arrives() -> None:
    settings = RunSettings(fragments=2)
    held = ValueStore(settings, LAYOUT, CountingSgd())
    values = [np.ones(f.size, np.float32) for f in LAYOUT.fragments]
    digests = held.keep_initial(values)
    assert CountingSgd.made == [value.size for value in values]
    held.install_seed(Version(1, 0), digests)
    assert len(CountingSgd.made) == len(values)
    assert set(held.journal_arrays(0, Version(1, 0))) == {"value", "momentum"}


def three_merged(held: ValueStore, fragment: int, number: int) -> None:
    """Merge the same three contributions as every other store at this number."""
    rng, part = np.random.default_rng((fragment, number)), LAYOUT.fragments[fragment]
    before, parts = Version(1, number - 1), list[MergePart]()
    for name in ("ana", "ben", "eve"):
        ticket = Ticket(1, number, LearnerName(name), WHO)
        held.hold(
            ticket,
            0,
            measure(rng.standard_normal(part.size, np.float32), part.units(MergeRule.AVERAGE)),
        )
        parts.append(MergePart(ticket, 0, before, 8, 2, 1.0))
    held.merge(BeginMerge(FragmentIndex(fragment), number, before, Version(1, number), (*parts,)))
    for each in parts:
        held.drop(each.ticket)


def test_what_increments_left_is_published_if_whole_values_are_sent_from_now_on() -> None:
    by_increments = store(merge=MergeRule.AVERAGE, update_precision=UpdatePrecision.FP4)
    exact, revived = store(merge=MergeRule.AVERAGE), store(merge=MergeRule.AVERAGE)
    for held in (by_increments, exact):
        held.install_seed(Version(1, 0), held.keep_initial(WHOLE))
        for number in range(1, 5):
            three_merged(held, 0, number)
    newest, last = Version(1, 4), Version(1, 5)
    assert np.abs(by_increments.value(0, newest) - exact.value(0, newest)).max() > 1e-3
    revived.restore(0, newest, by_increments.journal_arrays(0, newest))
    for held in (revived, exact):
        three_merged(held, 0, 5)
    np.testing.assert_allclose(revived.value(0, last), exact.value(0, last), atol=1e-5)
    assert "remainder" not in revived.journal_arrays(0, last)
