"""A small file in the run's folder with the hub's address, for operators on the same host."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from islands.files.run_files import HUB_FILE
from islands.files.whole_files import read_sealed, write_sealed
from islands.protocol.errors import DamagedError, UserError


@dataclass(frozen=True, slots=True)
class HubAddress:
    """The address of a supervisor, the name of its run, and the files of its secrets.

    A file that the hub was not given is in the folder, and empty here. `key_mark` and `token_mark`
    are digests under the key, which differ where the secrets of two starts do. The hub's process
    searched for the task and its data in `task_folders`, and stores checkpoints in `checkpoints`: a
    path or URL, empty if they are in the folder.
    """

    supervisor: str
    run: str
    token_file: str = ""
    key_file: str = ""
    key_mark: str = ""
    token_mark: str = ""
    task_folders: tuple[str, ...] = ()
    checkpoints: str = ""

    @property
    def needed(self) -> tuple[str, str, str]:
        """What a process must have to reach the hub: its address, and what its secrets are."""
        return self.supervisor, self.key_mark, self.token_mark


def write_hub_address(folder: Path, address: HubAddress) -> None:
    write_sealed(folder / HUB_FILE, msgspec.json.encode(address))


def read_hub_address(folder: Path) -> HubAddress:
    """Read the address at which the hub of a folder is, or was last."""
    path = folder / HUB_FILE
    try:
        content = read_sealed(path)
        if content is None:
            raise UserError(
                f"{path} cannot be read: there is no such file; folder must be that of a run whose "
                "supervisor lives on this host"
            )
        return msgspec.json.decode(content, type=HubAddress)
    except (DamagedError, msgspec.MsgspecError) as error:
        raise UserError(
            f"{path} is damaged: it does not say where the supervisor is; name it instead"
        ) from error


def task_folders_of(folder: Path) -> tuple[str, ...]:
    """Return the folders in which a run's hub searched for its task; none if that is not known."""
    try:
        return read_hub_address(folder).task_folders
    except UserError:  # the folder is a copy, or that of a run of `LocalSystem`
        return ()


def checkpoints_of(folder: Path) -> str | None:
    """Return where a run's hub stores checkpoints; None: in its folder."""
    had_hub = (folder / HUB_FILE).exists()
    return read_hub_address(folder).checkpoints or None if had_hub else None
