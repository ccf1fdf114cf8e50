"""The newest published values of a run that goes on, for an evaluation of one's own."""

from collections.abc import Callable, Sequence
from pathlib import Path

from islands.loops.follow import VALUES_S, Arrays, follow
from islands.protocol.errors import UnreachableError
from islands.run.hosting.process_runtime import say as say_on_terminal
from islands.settings.groups import ConnectOptions


def latest(
    address: str | Sequence[str],
    *,
    token_file: Path | str | None = None,
    connecting: ConnectOptions | None = None,
    wait_s: float = VALUES_S,
    say: Callable[[str], object] = say_on_terminal,
) -> Arrays:
    """Fetch the newest published values of a run, as `islands.follow` that stays for these alone.

    Args:
        address: see `islands.join`, as are `token_file`, `connecting` and `say`.
        wait_s: how long to wait for the values, once the hub has answered.

    Returns:
        float32 arrays by path; some may be a few steps newer than others.

    Raises:
        UnreachableError: no hub answers, or it has no values in time.
        RefusedError: the hub refuses.
    """
    with follow(
        address, token_file=token_file, connecting=connecting, wait_s=wait_s, say=say
    ) as run:
        for newest in run:
            return newest.values
    raise UnreachableError("the run is over, and its values had not arrived; its folder has them")
