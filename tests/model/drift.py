"""How far learners move together by steps of one of them at a time, each in the last place."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from islands.model.interfaces import Snapshot
from islands.protocol.settings.choices import Adoption, SnapshotPrecision

Floats = NDArray[np.float32]
ULPS = 12
BEGINS = 1.0
ULP = {"float32": 2.0**-7, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Distance of 1 to the next number of a dtype; in float32, which is published, that of bfloat16."""


class Moved(Protocol):
    """The part of a model that boundaries use."""

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        """Take base − local."""

    def adopt(self, fragment: int, value: Floats) -> None:
        """Overwrite base and local."""

    def carry_on(self, fragment: int, value: Floats, sent: Floats | None) -> None:
        """Correct the local value."""


ModelT = TypeVar("ModelT", bound=Moved)


def ulps_moved(
    models: Sequence[ModelT],
    step: Callable[[ModelT, float], None],
    adoption: Adoption,
    dtype: str,
    size: int,
) -> float:
    """Let one learner in turn step by an ulp, merge all with an outer rate of 1, and repeat.

    Each of M learners steps `ULPS` times, so that all move by so many ulps together. All begin at
    `BEGINS`; `step` adds a number to every element of a model's leaves. Returns by how many ulps
    the published value of fragment 0 has moved, as a mean of its elements.
    """
    published = np.full(size, BEGINS, np.float32)
    for turn in range(ULPS * len(models)):
        step(models[turn % len(models)], ULP[dtype])
        sent = [_sent(model) for model in models]
        published = published - np.mean(sent, axis=0, dtype=np.float32)
        for model, own in zip(models, sent, strict=True):
            if adoption is Adoption.OVERWRITE:
                model.adopt(0, published)
            else:
                model.carry_on(0, published, own)
    return float(np.mean(published - BEGINS)) / ULP[dtype]


def _sent(model: Moved) -> Floats:
    return np.frombuffer(model.snapshot(0, "float32").buffer(), np.float32)
