"""The goodput that Decoupled DiLoCo's authors published (arXiv 2604.21428), in percent.

Their stall times are unpublished. Ours were fitted to the two rows of data-parallel training, so
those rows are a calibration, and only the rows of several learners are predictions.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """A row of the table: so many learners, elastic or not."""

    learners: int
    elastic: bool = True

    @property
    def name(self) -> str:
        """What it is called."""
        if self.learners > 1:
            return f"decoupled, M={self.learners}"
        return "data-parallel, elastic" if self.elastic else "data-parallel, not elastic"

    @property
    def calibrated(self) -> bool:
        """Whether the simulation's constants were fitted to it."""
        return self.learners == 1


MTBI_S = 365 * 24 * 3600.0
CHIPS = (150e3, 300e3, 600e3, 1.2e6, 2.4e6)
GOODPUT: dict[Row, tuple[float, ...]] = {
    Row(1, elastic=False): (72, 57, 38, 27, 18),
    Row(1): (88, 80, 69, 58, 40),
    Row(2): (94, 88, 80, 70, 54),
    Row(4): (96, 93, 89, 82, 73),
    Row(8): (98, 96, 94, 88, 80),
    Row(16): (99, 98, 96, 93, 86),
}


def published(row: Row, chips: float, mtbi_s: float) -> float | None:
    """Return the published goodput of so many chips, in percent; None if there is none.

    It is that of chips which fail once a year.
    """
    if row not in GOODPUT or chips not in CHIPS or mtbi_s != MTBI_S:
        return None
    return GOODPUT[row][CHIPS.index(chips)]
