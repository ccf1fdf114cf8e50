"""Where the hub of a run is: a small file in the run's folder, for operators on the same host."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from islands.errors import UserError

HUB_FILE = "hub.json"


@dataclass(frozen=True, slots=True)
class HubPlace:
    """The address of a supervisor, the name of its run, and the files of its secrets.

    The files are those that the hub was told; empty: those in the folder.
    """

    supervisor: str
    run: str
    token_file: str = ""
    key_file: str = ""


def write_place(folder: Path, place: HubPlace) -> None:
    """Tell where the hub is; whoever reads meanwhile finds the old file or the new one.

    Raises:
        OSError: the folder cannot be written to.
    """
    path = folder / HUB_FILE
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(place) + b"\n")
    fresh.replace(path)


def read_place(folder: Path) -> HubPlace:
    """Where the hub of a folder is, or was last.

    Raises:
        UserError: the folder is none of a run whose hub lived on this host.
    """
    path = folder / HUB_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=HubPlace)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}; folder must be that of a run whose "
            "supervisor lives on this host"
        ) from error
    except msgspec.MsgspecError as error:
        raise UserError(f"{path} does not say where the supervisor is; name it instead") from error
