"""Revocations of invitations, which a hub keeps in a sealed file of its run's folder, twice."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from islands.files.run_files import REVOKED_FILE, SPARE
from islands.files.spare_files import read_either, write_twice
from islands.protocol.errors import DamagedError, UserError
from islands.protocol.invitations import Invitations
from messaging.clock import WallClock


class _Kept(msgspec.Struct):
    revoked: dict[str, int]


def read_revoked(folder: Path) -> dict[str, int]:
    """Return the revocations that are kept in a folder; a hub that lost them admits nobody."""
    path = folder / REVOKED_FILE
    try:
        content = read_either(path)
        return {} if content is None else msgspec.json.decode(content, type=_Kept).revoked
    except (DamagedError, msgspec.MsgspecError) as error:
        raise UserError(
            f"{path} is damaged, so it is not known whose invitations were revoked: move it and "
            f"its copy in {SPARE} away, start the hub, and revoke these anew by islands revoke"
        ) from error


def keep_revoked(folder: Path, revoked: Mapping[str, int]) -> None:
    write_twice(folder / REVOKED_FILE, msgspec.json.encode(_Kept(dict(revoked))))


def revoke(invitations: Invitations, folder: Path, name: str) -> tuple[Mapping[str, int], str]:
    """End all invitations of a name; return all revocations, and why they cannot be kept."""
    failure = invitations.revoke(name, WallClock().now_s())
    path = folder / REVOKED_FILE
    if failure is None:
        try:
            keep_revoked(folder, invitations.revoked)
        except OSError as error:
            failure = f"{path} cannot be written: {error.strerror}"
    return dict(invitations.revoked), failure or ""
