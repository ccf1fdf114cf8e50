"""What a simulated world records: faults, which processes it killed, and with what a run ended."""

from islands.tape.entry import Entry


class ProcessKilled(Entry, frozen=True):
    """A simulated process was killed; silently, if its machine vanished with it."""

    name: str
    silent: bool
    mailbox_most: int
    waiting_bytes_most: int | None = None


class LeftOver(Entry, frozen=True):
    """A simulated process still ran when the run was over, or should have been."""

    name: str


class Fault(Entry, frozen=True):
    """Something was done to the world."""

    fault: str
    names: list[str]


class Healed(Entry, frozen=True):
    """Faults have stopped: the system may take `recovery_s`; then `period_s` bounds its lag."""

    recovery_s: float
    period_s: float


class Final(Entry, frozen=True):
    """The published values with which a run ended."""

    versions: list[str]
    digests: list[str]
    finite: bool
