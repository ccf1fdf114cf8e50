"""What a model says of its inner optimizer where that is its user's own.

The user steps it. Where its state was told, a restarted learner gets a peer's, as learners of tasks
do; what is broken is the user's to reset.
"""

from collections.abc import Sequence
from typing import Protocol

from islands.model.model import Model, MomentsCopy
from islands.protocol.errors import InvariantError, TaskError


class HeldMoments(Protocol):
    """The state of a user's optimizer, of which pieces are read and which may be replaced."""

    @property
    def schema(self) -> str:
        """Digest (hex) of names, dtypes and shapes; "" if it has no array."""

    @property
    def count(self) -> int:
        """How many pieces it is cut into."""

    def prepare(self) -> None:
        """Compile what `read` will call."""

    def read(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a piece into new buffers, and start their copy to the host."""

    def load(self, pieces: Sequence[memoryview]) -> None:
        """Replace the whole state.

        Raises:
            InvariantError: the pieces are no finite state of this kind; nothing was changed.
        """


class OwnMoments:
    """A model whose inner optimizer is its user's.

    Attributes:
        moments: The optimizer's state; None where it is not told, and so neither given nor taken.
    """

    moments: HeldMoments | None = None
    _diverged = False

    @property
    def moments_schema(self) -> str:
        """Return the digest of the state; "" where there is none."""
        return "" if self.moments is None else self.moments.schema

    @property
    def moment_pieces(self) -> int:
        """Return the number of pieces; 0 where there is no state."""
        return 0 if self.moments is None else self.moments.count

    def reset_moments(self) -> None:
        """Note that the user has to reset the optimizer's state."""
        self._diverged = True

    def take_divergence(self) -> bool:
        """Return whether the user has to reset the optimizer's state, and forget it."""
        found, self._diverged = self._diverged, False
        return found

    def prepare_giving(self) -> None:
        """Compile what `read_moments` will call."""
        if self.moments is not None:
            self.moments.prepare()

    def read_moments(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a piece of the state, and its copy to the host."""
        if self.moments is None:
            raise InvariantError(f"piece {piece} of a model without moments was asked for")
        return self.moments.read(piece)

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Replace the state by a peer's.

        Raises:
            InvariantError: the pieces are no finite state of this kind; nothing was changed.
        """
        if self.moments is None:
            raise InvariantError(f"{len(pieces)} pieces were given to a model without moments")
        self.moments.load(pieces)


def check_finite(model: Model) -> None:
    """Refuse a model that would spoil those of others.

    Raises:
        TaskError: its parameters are not all finite.
    """
    if not model.finite():
        raise TaskError("the parameters that join the run are not all finite numbers")
