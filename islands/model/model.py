"""The interface of the arrays of one learner's model, as a step boundary uses them.

Between two steps, at a *boundary*, snapshots are taken, values adopted and moments reset; nothing
of it waits for the device:

* `snapshot` dispatches a subtraction into a new buffer and starts its copy to the host while the
  next step already runs; `Snapshot.buffer` waits.
* `adopt` dispatches.
* `read_moments` copies out a piece of the inner optimizer's state as `snapshot` does; a restarted
  peer passes all pieces to `load_moments` and continues as if it had never stopped.

The devices of a model may belong to several processes of one program. Then each has a model, and
all call the same methods in the same order with the same arguments, but for the flat values of
fragments: of each, a process gives and is given its *share* alone, the elements on its own devices.
It waits for no other process to read or fill them. In a process that has all devices, the share is
the whole value.

All methods are called from one thread. `buffer` and `ready` may be called from another.

A `Trainer` is a model that Islands steps itself; that of a loop of the user's own is stepped there.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.protocol.ranges import Ranges
from islands.protocol.settings.run import SnapshotPrecision
from islands.settings.wire_limits import STATE_PIECE_BYTES

MOMENT_PIECE_BYTES = STATE_PIECE_BYTES
"""Largest size of a piece of moments: a boundary can copy so much without delaying a step."""


class Snapshot(Protocol):
    """A copy made at a boundary (a share of `base - local`), on its way to the host."""

    def buffer(self) -> memoryview:
        """Wait until it is on the host and return its bytes, in the precision asked for."""

    def ready(self) -> bool:
        """Whether `buffer` would return at once."""


class MomentsCopy(Snapshot, Protocol):
    """A piece of the inner optimizer's state, on its way to the host."""

    def finite(self) -> bool:
        """Wait until it is on the host, and return whether all its floating numbers are finite."""


class Model(Protocol):
    """One learner's copy of the model, with the state of its inner optimizer."""

    @property
    def layout(self) -> Layout:
        """The fragments of the model; known before `setup`."""

    @property
    def compiling(self) -> bool:
        """Whether a call is compiling now, as `setup` and a step on a new shape do.

        It may be read from any thread.
        """

    def share(self, fragment: int) -> Ranges:
        """Return which elements of a fragment's flat value are this process's share.

        They are ranges (start, stop), ascending. The share as an array is flat and contiguous: the
        elements of one range after those of the other. Known before `setup`.
        """

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        """Return the share of each process that has some of the devices, by ascending index.

        Every element of the value is in one of them. Known before `setup`.
        """

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        """Dispatch base − local of a fragment's share in float32, cast to a precision."""

    def value(self, fragment: int) -> NDArray[np.float32]:
        """Return the local value of a fragment's share on the host."""

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        """Return the base of a fragment's share on the host, which seeds version 0.

        It is the value adopted last, to the bit; before the first one, the initial value.
        """

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        """Dispatch base := value and local := value.

        Of the inner optimizer's moments, those that lie in the fragment are overwritten too.
        `value` is this process's share, flat float32; the caller may reuse its buffer as soon as
        the call returns.
        """

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        """Dispatch local := local + (value − (base − sent)) and base := value.

        The learner keeps the progress it made since `sent` was taken, on top of the value.

        Args:
            fragment: index of the fragment.
            value: this process's share of the published value, flat float32, as for `adopt`.
            sent: its share of base − local of the contribution that the value contains, flat
                float32; None, in every process, if it contains none of this learner.
        """

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        """Dispatch local := share · local + (1 − share) · value and base := value.

        Args:
            fragment: index of the fragment.
            value: this process's share of the published value, flat float32, as for `adopt`.
            share: α in [0, 1], share of the local value that is kept.
        """

    def finite(self) -> bool:
        """Whether the whole local state is finite; waits for the device."""

    def reset_moments(self) -> None:
        """Dispatch a fresh state of the inner optimizer."""

    @property
    def moments_schema(self) -> str:
        """Digest (hex) of names, dtypes and shapes of the whole inner optimizer's state.

        Learners with equal schemas can load each other's moments; "" if there are no moments.
        Known before `setup`.
        """

    @property
    def moment_pieces(self) -> int:
        """How many pieces the moments are cut into; 0 if there are none. Known before `setup`.

        The bytes of all leaves are concatenated in a fixed order and cut into pieces of at most
        `MOMENT_PIECE_BYTES`, so the number is the same for equal schemas.
        """

    def prepare_giving(self) -> None:
        """Make `read_moments` ready, so that no step waits for a compilation.

        It is called once, after `setup`, from any thread.
        """

    def read_moments(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a piece into new buffers, and start their copy to the host.

        Every process gets the whole piece.
        """

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Dispatch the replacement of the whole inner optimizer's state by these pieces.

        Every process is given all of them. The buffers may be reused as soon as the call returns.

        Raises:
            InvariantError: number or lengths differ from this trainer's own; nothing was changed.
                The caller should have compared `moments_schema`.
        """
