"""What a model says of its inner optimizer where that is its user's own."""

from collections.abc import Sequence

from islands.errors import InvariantError, TaskError
from islands.training.model import Model, MomentsCopy


class WithoutMoments:
    """A model without moments that could be given to a peer."""

    _diverged = False

    @property
    def moments_schema(self) -> str:
        """Return "": there are none."""
        return ""

    @property
    def moment_pieces(self) -> int:
        """Return 0: there are none."""
        return 0

    def reset_moments(self) -> None:
        """Note that the user has to reset the optimizer's state."""
        self._diverged = True

    def take_divergence(self) -> bool:
        """Return whether the user has to reset the optimizer's state, and forget it."""
        found, self._diverged = self._diverged, False
        return found

    def prepare_giving(self) -> None:
        """Do nothing: there is nothing to give."""

    def read_moments(self, piece: int) -> MomentsCopy:
        """Refuse: nobody asks for a piece of what is not there."""
        raise InvariantError(f"piece {piece} of a model without moments was asked for")

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Refuse: nobody gives moments to a model without any."""
        raise InvariantError(f"{len(pieces)} pieces were given to a model without moments")


def check_finite(model: Model) -> None:
    """Refuse a model that would spoil those of others.

    Raises:
        TaskError: its parameters are not all finite.
    """
    if not model.finite():
        raise TaskError("the parameters that join the run are not all finite numbers")
