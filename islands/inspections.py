"""Payloads that arrived and are being measured on a worker; the state hears of them afterwards."""

from collections import Counter
from collections.abc import Callable

from islands.messages import Contribution, FragmentSeed
from islands.numerics.check import Measured
from islands.ports import Worker
from islands.syncer.events import ContributionArrived, SeedArrived
from islands.syncer.fate import Check
from islands.syncer.vault import Vault

INSPECTIONS_MAX = 4
"""Contributions of one learner that may wait for the worker: two pulls, each answered again."""


class Inspections:
    """What waits for the worker, by sender.

    Args:
        vault: measures, and keeps what is finite.
        worker: does it.
        post: given the event for each payload that was measured.
    """

    def __init__(
        self,
        vault: Vault,
        worker: Worker,
        post: Callable[[ContributionArrived | SeedArrived], object],
    ) -> None:
        """Nothing waits."""
        self._vault = vault
        self._worker = worker
        self._post = post
        self._waiting: Counter[str] = Counter()

    def take_contribution(
        self, connection: int, message: Contribution, payload: tuple[memoryview, ...]
    ) -> None:
        """Measure it; one too many is lost, and asked for again if it was wanted."""
        name = str(message.ticket.name)
        if self._waiting[name] >= INSPECTIONS_MAX:
            return
        self._waiting[name] += 1

        def arrive(result: tuple[Check, Measured | None]) -> None:
            self._done(name)
            check, measured = result
            if measured is not None and check.finite:
                self._vault.hold(message.ticket, connection, measured)
            self._post(ContributionArrived(message, check, connection))

        self._worker.submit(lambda: self._vault.inspect(message, payload), arrive)

    def take_seed(self, seed: FragmentSeed, payload: tuple[memoryview, ...], at_most: int) -> None:
        """Check a fragment of an initial value, of which its sender has so many at most."""
        name = str(seed.name)
        if self._waiting[name] >= at_most:
            return
        self._waiting[name] += 1

        def arrive(intact: bool) -> None:  # noqa: FBT001  a callback's only argument
            self._done(name)
            self._post(SeedArrived(seed, intact=intact))

        self._worker.submit(lambda: self._vault.take_seed(seed, payload), arrive)

    def _done(self, name: str) -> None:
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
