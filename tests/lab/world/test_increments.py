"""All copies of a published value are the same bits, however it was reached."""

import pytest

from islands.protocol.settings.choices import Adoption, UpdatePrecision
from tests.lab.world.increment_run import EVERYBODY, Found, play, settings_of

pytestmark = pytest.mark.simulation

INT8, FP4 = UpdatePrecision.INT8, UpdatePrecision.FP4


@pytest.mark.quick("-100")
@pytest.mark.parametrize(
    ("precision", "adoption", "by_jax", "merges"),
    [
        pytest.param(INT8, Adoption.DELAY_CORRECTED, False, 500, id="int8-numpy-500"),
        pytest.param(FP4, Adoption.OVERWRITE, True, 100, id="fp4-jax-100"),
        pytest.param(INT8, Adoption.MIX, True, 100, id="int8-jax-100"),
        pytest.param(FP4, Adoption.DELAY_CORRECTED, False, 100, id="fp4-numpy-100"),
    ],
)
def test_all_copies_are_the_same_bits(
    precision: UpdatePrecision, adoption: Adoption, merges: int, *, by_jax: bool
) -> None:
    """With a late joiner, one that misses versions, one that is restarted, and so is the syncer.

    Every base that a learner has had, on its device, is a published value to the bit, and XLA makes
    every published value from the increments as the syncer does in NumPy. At the end all have the
    newest, or the one before.
    """
    found = play(settings_of(precision, adoption), merges, by_jax=by_jax)
    assert found.merges >= merges
    assert found.wrong == []
    assert found.refused == []
    for name in EVERYBODY:
        assert set(found.bases[name]) <= set(found.published)
        assert found.bases[name][-1] in found.published[-2:]
        assert len(set(found.bases[name])) > merges * 2 // 3
    sent_as_it_should_be(found, precision, merges)


def sent_as_it_should_be(found: Found, precision: UpdatePrecision, merges: int) -> None:
    """Nearly all are increments one by one, some are chains, and whole values are rare."""
    most = 0.30 if precision is INT8 else 0.18
    assert found.sent_bytes < most * found.whole_bytes + 30 * found.size_bytes
    assert 4 <= found.updates[0] < 30
    assert found.updates[1] > 2 * merges
    assert sum(count for length, count in found.updates.items() if length > 1) >= 3
