"""Where the hub of a run is: a small file in the run's folder, for operators on the same host."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from islands.errors import DamagedError, UserError
from islands.files.seals import read_sealed, write_sealed

HUB_FILE = "hub.json"


@dataclass(frozen=True, slots=True)
class HubPlace:
    """The address of a supervisor, the name of its run, and the files of its secrets.

    The files are those that the hub was told; empty: those in the folder. `key_mark` and
    `token_mark` tell the secrets of one start from those of another, to whoever has the key.
    """

    supervisor: str
    run: str
    token_file: str = ""
    key_file: str = ""
    key_mark: str = ""
    token_mark: str = ""


def write_place(folder: Path, place: HubPlace) -> None:
    """Tell where the hub is; whoever reads meanwhile finds the old file or the new one.

    Raises:
        OSError: the folder cannot be written to.
    """
    write_sealed(folder / HUB_FILE, msgspec.json.encode(place))


def read_place(folder: Path) -> HubPlace:
    """Where the hub of a folder is, or was last.

    Raises:
        UserError: the folder is none of a run whose hub lived on this host, or the file is damaged.
    """
    path = folder / HUB_FILE
    try:
        content = read_sealed(path)
        if content is None:
            raise UserError(
                f"{path} cannot be read: there is no such file; folder must be that of a run whose "
                "supervisor lives on this host"
            )
        return msgspec.json.decode(content, type=HubPlace)
    except (DamagedError, msgspec.MsgspecError) as error:
        raise UserError(
            f"{path} is damaged: it does not say where the supervisor is; name it instead"
        ) from error


def outlived_by(earlier: HubPlace | None, place: HubPlace) -> str:
    """Why processes that outlived an earlier start are of no use to this one; "" if they are.

    Args:
        earlier: what that start told of itself; None if nobody knows any more.
        place: what this one will.
    """
    if earlier is None or earlier.supervisor != place.supervisor:
        return "look for the hub where it was before"
    if (earlier.key_mark, earlier.token_mark) != (place.key_mark, place.token_mark):
        return "have the key or the token of before"
    return ""
