"""How an operator has a standby take over: by files in its folder, which only its owner can write.

promote         the wish, signed with the run's key
promoted.json   the standby's answer; what it goes on as is in it for good
"""

import hmac
from contextlib import suppress
from pathlib import Path

import msgspec

from islands.files.run_files import PROMOTE_FILE, PROMOTED_FILE, STANDBY_FILE
from islands.files.whole_files import read_sealed, replace_file, write_sealed
from islands.protocol.errors import DamagedError, UserError
from islands.protocol.membership import Credentials


class Standby(msgspec.Struct, frozen=True):
    """The name of a standby, which it keeps over its starts, and the file of its key."""

    name: str
    key_file: str


def keep_standby(folder: Path, standby: Standby) -> None:
    write_sealed(folder / STANDBY_FILE, msgspec.json.encode(standby))


def standby_in(folder: Path) -> Standby | None:
    """Return the standby whose folder this is; None if it is none, or does not say so any more."""
    try:
        content = read_sealed(folder / STANDBY_FILE)
        return None if content is None else msgspec.json.decode(content, type=Standby)
    except (DamagedError, msgspec.MsgspecError):
        return None


class Answer(msgspec.Struct, frozen=True):
    """Whether a standby takes over, as its `hub` or its `syncer`, and otherwise why it does not."""

    role: str = ""
    reason: str = ""


def wish(folder: Path, credentials: Credentials) -> None:
    if (before := answered(folder)) is not None and not before.role:
        (folder / PROMOTED_FILE).unlink(missing_ok=True)
    replace_file(folder / PROMOTE_FILE, credentials.derive(PROMOTE_FILE).encode(), private=True)


def wished(folder: Path, credentials: Credentials) -> bool:
    """Return whether an operator wants the standby to take over; a forged wish is removed."""
    try:
        signed = (folder / PROMOTE_FILE).read_bytes()
    except OSError:
        return False
    if hmac.compare_digest(signed, credentials.derive(PROMOTE_FILE).encode()):
        return True
    with suppress(OSError):
        answer(folder, Answer(reason="the wish is not signed with the run's key"))
    return False


def answer(folder: Path, given: Answer) -> None:
    """Answer a wish, which is then fulfilled or refused."""
    write_sealed(folder / PROMOTED_FILE, msgspec.json.encode(given))
    (folder / PROMOTE_FILE).unlink(missing_ok=True)


def answered(folder: Path) -> Answer | None:
    """Return the last answer; None if there is none."""
    path = folder / PROMOTED_FILE
    try:
        content = read_sealed(path)
        return None if content is None else msgspec.json.decode(content, type=Answer)
    except (DamagedError, msgspec.MsgspecError) as error:
        raise UserError(
            f"{path} is damaged, so it is not known whether this standby has taken over: if it "
            "has, python -m islands.syncer goes on in its folder; else move that file away"
        ) from error
