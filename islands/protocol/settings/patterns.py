"""How tensors are spread over fragments, by name; `fragments.py` does it."""

from enum import StrEnum


class Pattern(StrEnum):
    """Which tensors share a fragment.

    `balanced` makes fragments of about equal size. `layers` gives each fragment consecutive layers
    and `strided` every P-th layer (Streaming DiLoCo); both need layers that are numbered in the
    paths, or stacked.
    """

    BALANCED = "balanced"
    LAYERS = "layers"
    STRIDED = "strided"
