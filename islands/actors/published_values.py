"""The published values that a member is sent: whole, or as increments to those that it has.

A member of a run whose updates are increments keeps the newest value of every fragment on its host,
as it was published. An increment is added by the same operations that the syncer published its own
value by (`numerics/increment.py`), and the digest of the sum is that of the published value, or it
is refused. A chain whose first increments were added before is taken up where it goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import Worker
from islands.layout.leaves import VALUE_BYTES, Layout
from islands.numerics.codecs import size_bytes
from islands.numerics.increment import applied
from islands.protocol.identities import Version
from islands.protocol.messages.training import FragmentUpdate, IncrementsSince
from islands.protocol.settings.choices import Precision, UpdatePrecision
from islands.protocol.tape.process_entries import KeptOut
from messaging.codec.tensors import as_buffer, digest

Payload = Sequence[memoryview]

PRECISIONS = {str(each) for each in UpdatePrecision if each.of_increments}


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of an update: the published value, flat float32, or why it is refused."""

    value: memoryview = field(default=memoryview(b""), repr=False)
    refused: str = ""

    @property
    def intact(self) -> bool:
        return not self.refused


class PublishedValues:
    """The newest published value of every fragment, if updates are increments to them.

    All lengths come from the layout, never from a message.
    """

    def __init__(self, layout: Layout, precision: UpdatePrecision) -> None:
        self._layout = layout
        self._keeps = precision.of_increments
        self._held: dict[int, tuple[Version, NDArray[np.float32]]] = {}

    def forget(self) -> None:
        self._held.clear()

    def take_in(
        self,
        update: FragmentUpdate,
        payload: Payload,
        worker: Worker,
        *,
        record: Callable[[KeptOut], object],
        arrived: Callable[[Taken], object],
    ) -> None:
        """Take in an update off the loop, in order, and record why one is refused."""

        def refuse(reason: str) -> None:
            what = f"fragment {update.fragment} at {update.version}"
            record(KeptOut("syncer", what, reason))

        def report(taken: Taken) -> None:
            if not taken.intact:
                refuse(taken.refused)
            arrived(taken)

        malformed = self.malformed(update, payload)
        if malformed is not None:
            refuse(malformed)
        else:
            worker.submit(lambda: self.take(update, payload), report)

    def malformed(self, update: FragmentUpdate, payload: Payload) -> str | None:
        if not 0 <= update.fragment < len(self._layout.fragments):
            return f"there is no fragment {update.fragment}"
        fragment, since = self._layout.fragments[update.fragment], update.since
        if since is None:
            count, expected = 1, VALUE_BYTES * fragment.size
        elif since.precision not in PRECISIONS:
            return f"nobody knows the precision {since.precision!r} of increments"
        else:
            count = update.version.number - since.base.number
            expected = size_bytes(fragment.size, since.precision, fragment.averages)
        if len(payload) != count or not payload:
            what = "a value" if since is None else f"increments since {since.base}"
            return f"{len(payload)} buffers came, and it takes {count} ({what})"
        lengths = {one.nbytes for one in payload}
        if lengths != {expected}:
            return f"buffers of {sorted(lengths)} bytes came, and each must have {expected}"
        return None

    def take(self, update: FragmentUpdate, payload: Payload) -> Taken:
        """Take in an update that fits the layout; heavy, for the one worker that does this."""
        if update.since is not None:
            return self._added(update, update.since, payload)
        value = payload[0]
        if digest(value) != update.digest:
            return Taken(value, "the digest is not that of the value")
        self._keep(update, np.frombuffer(value, np.float32))
        return Taken(value)

    def _added(self, update: FragmentUpdate, since: IncrementsSince, payload: Payload) -> Taken:
        version, value = self._held.get(update.fragment, (None, None))
        if version is None or value is None:
            return Taken(refused=f"increments since {since.base} came, and no value is held")
        if version == update.version:
            return Taken(as_buffer(value))
        known = version.number - since.base.number
        if known < 0 or known >= len(payload) or (known == 0 and version != since.base):
            return Taken(refused=f"increments since {since.base} came, and {version} is held")
        fragment = self._layout.fragments[update.fragment]
        for increment in payload[known:]:
            total = applied(value, increment, Precision(since.precision), fragment.averages)
            if total is None:
                return Taken(refused="an increment is not finite, by its scales or its sum")
            value = total
        if digest(as_buffer(value)) != update.digest:
            return Taken(refused=f"the digest is not that of {version} and the increments")
        self._keep(update, value)
        return Taken(as_buffer(value))

    def _keep(self, update: FragmentUpdate, value: NDArray[np.float32]) -> None:
        held = self._held.get(update.fragment)
        if self._keeps and (held is None or held[0] < update.version):
            self._held[update.fragment] = update.version, value
