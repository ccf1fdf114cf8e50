"""The exceptions of `islands`.

::

    IslandsError
    ├── UserError            the user can mend it; one sentence, exit code 2
    │   ├── SettingsError    a setting is wrong: names the key, the value and what is allowed
    │   ├── TaskError        the user's Task is wrong: names the path or the method
    │   ├── DataError        the corpus is missing, unreadable or not the one of the run
    │   └── TapeError        a tape is damaged, or of another version of islands
    ├── TaskFailedError      the user's Task raised while it ran; it may succeed later: exit code 1
    ├── UnreachableError     nobody answers; the same command may succeed later: exit code 1
    ├── RefusedError         a peer refused us; its sentence is passed on
    ├── OutdatedError        its journal is an older copy: the next start goes on, exit code 1
    ├── JournalError         the journal is not one that this start can go on with; says why
    │   ├── FencedError      a newer start of the syncer owns it: this one ends, exit code 3
    │   ├── DiskError        the device is full or failing just now: tried again; exit code 1
    │   └── DamagedError     what was committed is not there any more: a copy must be restored
    └── InvariantError       a bug of ours: an invariant that must always hold did not

Faults of links and frames are in `messaging.errors`. `exit_code_of` says with which code a process
ends, and so whether to start it again is in vain.
"""

import errno

from messaging.errors import LocalFault

DONE, FAILED, OF_NO_USE, REPLACED = 0, 1, 2, 3
"""Exit codes: done; not done, but the same command may do it; the user must mend something first; a
newer process has this one's disk, and to start this one again would take the disk back."""

UNFORESEEN = (ArithmeticError, LookupError, TypeError, ValueError)
"""What arithmetic and look-ups with a peer's numbers raise where a check was forgotten.

It ends that peer's session, and never the actor that took the message in.
"""

FULL_OR_FAILING = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Of a disk: the same command may succeed later, so it ends with exit code 1 and is restarted."""


class IslandsError(Exception):
    """Base of all errors of this package.

    Attributes:
        detail: Lines for whoever has to mend it, such as a traceback; empty if there are none.
    """

    detail: str = ""


class UserError(IslandsError):
    """Something the user can mend; the message is one sentence: what, where, how to mend it."""


class SettingsError(UserError):
    """A setting has a value that cannot work."""


class TaskError(UserError):
    """The user's Task does not keep its contract."""


class TaskFailedError(IslandsError):
    """The user's Task raised in the middle of a run; the same may succeed at the next start."""


class DataError(UserError):
    """The training data is missing, unreadable, or not what the run was started with."""


class TapeError(UserError):
    """A tape cannot be read: it is damaged, or another version of islands wrote it."""


class RefusedError(IslandsError):
    """A supervisor or syncer refused this process for good."""


class UnreachableError(IslandsError):
    """Nobody answered in time; waiting longer, or trying again, may help."""


class OutdatedError(IslandsError):
    """Peers follow a start that this journal does not know; the next one comes after it."""


class JournalError(IslandsError):
    """The syncer's journal is not one that this start can go on with."""


class FencedError(JournalError):
    """A newer start of the syncer owns the journal; starting this one again would take it back."""


class DiskError(JournalError):
    """The disk is full, read-only or broken just now; the same write may succeed later."""


def unusable(what: str, error: OSError) -> IslandsError:
    """What the system refused, as the error to raise: of the user's, or of the disk's.

    Args:
        what: such as "the run folder runs/first cannot be written".
        error: the system's.
    """
    kind = DiskError if error.errno in FULL_OR_FAILING else UserError
    return kind(f"{what}: {error.strerror or error}")


class DamagedError(JournalError):
    """A value that was committed cannot be read back."""


class InvariantError(IslandsError):
    """An invariant of FAULTS.md does not hold. This is a bug: please report the event tape."""


def exit_code_of(error: BaseException | None) -> int:
    """The exit code of a process that ended with an error, or without one."""
    match error:
        case None:
            return DONE
        case FencedError():
            return REPLACED
        case DiskError():  # whoever starts it again may find room
            return FAILED
        case UserError() | RefusedError() | JournalError() | LocalFault():
            return OF_NO_USE
        case _:
            return FAILED
