"""Error feedback: what a codec loses of a contribution is sent with a later one, once.

A residual r is kept for each fragment. A contribution δ is sent as the encoding of δ + r, and its
loss e is what the encoding does not contain::

    w = δ + r        e = w − decode(encode(w))        r ← r − (the r in w) + e, if it is applied

Only a contribution that was applied changes the residual: otherwise everything stays as before, and
the next one contains r again. With one contribution open at a time r becomes e. With several, each
contains the residual as it was, and the sums still balance: what was applied plus what is kept is
what the applied contributions were made of, but for rounding.

Reference:
    Error feedback: Karimireddy et al. (arXiv 1901.09847); for outer gradients SparseLoCo
    (arXiv 2508.15706), whose decay of the residual is 1 here.

Deviation (ours):
    The residual depends on the contribution's fate; there, all contributions are applied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from islands.numerics.codecs import Ranges, decode, encode
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.run import TOP_K_SHARE

OPEN_MAX = 2
"""Contributions to a fragment whose losses are kept; older ones can hardly be applied any more."""

Floats = NDArray[np.float32]
Ticket = tuple[int, int]
"""Epoch and round that a contribution answers."""


@dataclass(slots=True)
class _Fragment:
    """The residual of a fragment; by ticket, the residual that was sent and the new loss."""

    residual: Floats | None = None
    open: dict[Ticket, tuple[Floats | None, Floats]] = field(default_factory=dict)


class ErrorFeedback:
    """Encodes a learner's contributions, and keeps what is lost by that unless told not to.

    All methods must be called from one thread, in the order of the events that they report.
    `exact` has, by fragment, the ranges that are not encoded; `share` is that of `top_k`.
    """

    def __init__(
        self,
        precision: Precision,
        *,
        keeps: bool,
        exact: Sequence[Ranges] | None = None,
        share: float = TOP_K_SHARE,
    ) -> None:
        self._precision = precision
        self._keeps = keeps
        self._exact = exact
        self._share = share
        self._fragments: dict[int, _Fragment] = {}

    def encoded(
        self,
        fragment: int,
        ticket: Ticket,
        contribution: memoryview,
        precision: Precision | None = None,
    ) -> memoryview:
        """Encode a contribution (float32) for the wire, with the fragment's residual.

        If the ticket was answered before, that answer is void. A residual is in float32, so each
        contribution may have a precision of its own; by default all have that of this object.
        """
        precision = precision or self._precision
        values = np.frombuffer(contribution, np.float32)
        exact = () if self._exact is None else self._exact[fragment]
        if not self._keeps:
            return encode(values, precision, exact, self._share).data.toreadonly()
        kept = self._fragments.setdefault(fragment, _Fragment())
        kept.open.pop(ticket, None)
        wanted = values if kept.residual is None else values + kept.residual
        sent = encode(wanted, precision, exact, self._share)
        with np.errstate(invalid="ignore"):  # what is not finite is refused, and so never applied
            lost = wanted - decode(sent, wanted.size, precision, exact, self._share)
        kept.open[ticket] = kept.residual, lost
        while len(kept.open) > OPEN_MAX:
            del kept.open[min(kept.open)]
        return sent.data.toreadonly()

    def settle(self, fragment: int, decided: Ticket, applied: Ticket | None) -> None:
        """Note the fate of all contributions up to `decided`, of which at most one was applied.

        Those of older epochs have their fate, too.
        """
        kept = self._fragments.get(fragment)
        if kept is None:
            return
        found = kept.open.pop(applied, None) if applied is not None else None
        if found is not None:
            contained, lost = found
            if kept.residual is None or kept.residual is contained:
                kept.residual = lost
            else:
                others = kept.residual if contained is None else kept.residual - contained
                kept.residual = others + lost
        for ticket in list(kept.open):
            if ticket <= decided:
                del kept.open[ticket]

    def reset(self) -> None:
        """Forget everything, since the learner starts over from published values."""
        self._fragments.clear()

    def residual(self, fragment: int) -> Floats | None:
        kept = self._fragments.get(fragment)
        return None if kept is None else kept.residual
