"""Entries of a simulated world: faults, killed processes, and the final published values."""

from islands.protocol.tape.entry import Entry
from islands.protocol.tape.round_entries import Row

FREEZE, THAW = "freeze", "thaw"
FULL, FAILING, SLOW_DISK, DISK_MENDED = "full disk", "disk error", "slow disk", "disk mended"
SECOND_SYNCER = "second syncer"
"""Faults that rules of the history know, as `Fault.fault` names them."""


class ProcessKilled(Entry, frozen=True, tag="process_killed"):
    """A simulated process was killed; if `silent`, its machine vanished and no link was closed."""

    name: str
    silent: bool
    mailbox_most: int
    waiting_bytes_most: int | None = None


class LeftOver(Entry, frozen=True, tag="left_over"):
    """A simulated process still ran when the run was over, or should have been over."""

    name: str


class Fault(Entry, frozen=True, tag="fault"):
    """A fault was injected into the world, or happened in it by chance."""

    fault: str
    names: list[str]


class Healed(Entry, frozen=True, tag="healed"):
    """Faults have stopped; the system may take `recovery_s`, and then `period_s` bounds its lag."""

    recovery_s: float
    period_s: float


class Final(Entry, frozen=True, tag="final"):
    """The published values with which a run ended."""

    versions: list[str]
    digests: list[str]
    finite: bool


class Kept(Entry, frozen=True, tag="kept"):
    """A checkpoint with a manifest: what it holds, of the record that it was cut after.

    `fault` says what is not whole, and is empty if all is.
    """

    name: str
    fault: str
    epoch: int
    sequence: int
    versions: list[str]
    digests: list[str]
    ledger: list[Row]
