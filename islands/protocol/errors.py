"""The exceptions of `islands`.

::

    IslandsError
    ├── UserError            the user can mend it; one sentence, exit code 2
    │   ├── SettingsError    a setting is wrong: names the key, the value and what is allowed
    │   ├── TaskError        the user's Task is wrong: names the path or the method
    │   ├── DataError        the corpus is missing, unreadable or not the one of the run
    │   └── TapeError        a tape is damaged, or of another version of islands
    ├── TaskFailedError      the user's Task raised while it ran; it may succeed later: exit code 1
    ├── MalformedError       a peer's encoded values are not as they must be: they are refused
    ├── UnreachableError     nobody answers; the same command may succeed later: exit code 1
    ├── HostLostError        another process of this island was lost or failed: exit code 1
    ├── RefusedError         a peer refused us; its sentence is passed on; exit code 2
    │   └── RunOverError     since the run is over, so there is nothing left to do: exit code 0
    ├── OutdatedError        the syncer's journal is an older copy: a restart goes on, exit code 1
    ├── JournalError         this start cannot continue from the journal; says why; exit code 2
    │   ├── FencedError      a newer start of the syncer owns it: this one ends, exit code 3
    │   ├── DiskError        the device is full or failing just now: tried again; exit code 1
    │   └── DamagedError     a committed value cannot be read any more: a copy must be restored
    └── InvariantError       a bug of ours: an invariant that must always hold did not

Faults of links and frames are in `messaging.errors`. `exit_code_of` maps an error to the exit code
of its process, and so tells whether a restart can help.
"""

import errno

from messaging.errors import LocalFault

DONE, FAILED, OF_NO_USE, REPLACED = 0, 1, 2, 3
"""Exit codes: done; not done, but the same command may succeed later; the user must mend something
first; a newer process owns the disk, and a restart of this one would take it back.
"""

UNFORESEEN = (ArithmeticError, LookupError, TypeError, ValueError)
"""Errors by a peer's numbers where a check was forgotten: they end its session, never the actor."""

EXTRAS = {
    "jax": "jax",
    "jaxlib": "jax",
    "flax": "jax",
    "optax": "jax",
    "orbax": "jax",
    "scipy": "jax",
    "torch": "torch",
    "matplotlib": "plots",
    "tensorboard": "tensorboard",
    "tokenizers": "text",
    "sklearn": "tasks",
    "datasets": "hugging-face",
    "grain": "grain",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "sky": "skypilot",
}
"""The part of the installation that brings each optional package, by the package's module."""

FULL_OR_FAILING = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Disk errors after which a process ends with exit code 1 and is restarted: they may pass."""


class IslandsError(Exception):
    """Base of all errors of this package; `detail` has lines that help, such as a traceback."""

    detail: str = ""


class UserError(IslandsError):
    """A fault that the user can mend; the message is one sentence: what, where, how to mend it."""


class SettingsError(UserError):
    """A setting has a value that cannot work."""


class TaskError(UserError):
    """The user's Task does not keep its contract."""


class TaskFailedError(IslandsError):
    """The user's Task raised an error during a run; a restart may succeed."""


class DataError(UserError):
    """The training data is missing, unreadable, or not what the run was started with."""


class TapeError(UserError):
    """A tape cannot be read: it is damaged, or another version of islands wrote it."""


class RefusedError(IslandsError):
    """A supervisor or syncer refused this process for good."""


class RunOverError(RefusedError):
    """The run is over, so nobody is admitted any more, and nothing is left to mend or to do."""


class MalformedError(IslandsError):
    """What a peer sent does not decode; the message is one sentence for the tape."""


class UnreachableError(IslandsError):
    """Nobody answered in time; waiting longer, or trying again, may help."""


class OutdatedError(IslandsError):
    """Peers follow a start that this journal does not know; the next start takes a later epoch."""


class HostLostError(IslandsError):
    """Another process of this island was lost, stuck or has failed, so all of them end."""


class JournalError(IslandsError):
    """This start of the syncer cannot continue from its journal."""


class FencedError(JournalError):
    """A newer start of the syncer owns the journal; a restart of this one would take it back."""


class DiskError(JournalError):
    """The disk is full, read-only or broken just now; the same write may succeed later."""


def not_installed(what: str, package: str) -> str:
    """Return the sentence that `what` needs a package that is missing, one of `EXTRAS`."""
    return (
        f"{what} needs {package}, which is not installed; install it with: "
        f"pip install 'islands[{EXTRAS[package]}]'"
    )


def missing_package(error: BaseException) -> str | None:
    """Return the optional package that an import did not find; None if something else is wrong."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    return package if package in EXTRAS else None


def unusable(what: str, error: OSError) -> IslandsError:
    """Turn an error of the system into a DiskError or a UserError, whose sentence begins so."""
    kind = DiskError if error.errno in FULL_OR_FAILING else UserError
    return kind(f"{what}: {error.strerror or error}")


class DamagedError(JournalError):
    """A value that was committed cannot be read back."""


class InvariantError(IslandsError):
    """An invariant (protocol §15.5) does not hold. This is a bug: please report the event tape."""


def exit_code_of(error: BaseException | None) -> int:
    match error:
        case None | RunOverError():
            return DONE
        case FencedError():
            return REPLACED
        case DiskError():  # after a restart the disk may have room
            return FAILED
        case UserError() | RefusedError() | JournalError() | LocalFault():
            return OF_NO_USE
        case _:
            return FAILED
