"""The log file of a child process: its rotation, and the last lines that tell how the child ended.

A child writes to its file itself, so its output survives the launcher. The file is opened for
appending, so that it can be truncated while the child goes on writing.
"""

import os
import re
import shutil
import signal
from pathlib import Path

from islands.actors.ports import ProcessEnd
from islands.files.growing_files import older

LIMIT_BYTES = 16 * 2**20
TOLD_CHARACTERS = 600
TRACEBACK = "Traceback (most recent call last)"
CODE_UNKNOWN = "exit code unknown"
"""How the end of a process begins whose exit code only its parent could have learnt."""
_TAIL_BYTES = 8192


def rotate(path: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Rotate a log file that grew beyond the limit; return whether it was.

    The content is copied and the file truncated, because the child holds the open file, not its
    name; what it writes in between is lost.
    """
    try:
        if path.stat().st_size <= limit_bytes:
            return False
        shutil.copyfile(path, older(path))
        os.truncate(path, 0)
    except OSError:
        return False
    return True


def open_output(path: Path) -> int:
    """Open a log file for appending; if the disk takes no new file, the output is discarded."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


NO_MEMORY = (
    "the kernel's OOM killer ended it, since this host, or its container, had no memory left"
)
OOM_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


def oom_kills() -> int:
    """Return how many processes of this machine the kernel has killed for want of memory."""
    try:
        found = OOM_KILLS.search(Path("/proc/vmstat").read_bytes())
    except OSError:
        return 0
    return 0 if found is None else int(found[1])


def last_line(path: Path, start: int = 0) -> str:
    """Return the last line from `start` on that is not blank, as printable text cut to a limit."""
    lines = [line.strip() for line in _tail(path, start)]
    line = next((line for line in reversed(lines) if line), "")
    return _printable(line)[:TOLD_CHARACTERS]


def last_traceback(path: Path, start: int = 0) -> str:
    """Return the last traceback from `start` on, without its last line; empty if there is none."""
    lines = _tail(path, start)
    while lines and not lines[-1].strip():
        lines.pop()
    begins = [index for index, line in enumerate(lines) if line.startswith(TRACEBACK)]
    if not begins:
        return ""
    return "".join(_printable(line) + "\n" for line in lines[begins[-1] : -1])


def _tail(path: Path, start: int) -> list[str]:
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            start = start if start <= end else 0  # the file was rotated since
            file.seek(max(start, end - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def _printable(line: str) -> str:
    return "".join(sign for sign in line if sign.isprintable())


def end_of(
    exit_code: int | None, path: Path, start: int = 0, *, no_memory: bool = False
) -> ProcessEnd:
    """Describe how a process ended, by its exit code and its output.

    Its output begins at `start` of its log file. An exit code below 0 is the number of a signal;
    None is not known. `no_memory` says that the kernel killed it for want of memory.
    """
    if no_memory:
        return ProcessEnd(exit_code, f"killed by SIGKILL: {NO_MEMORY}", NO_MEMORY, "")
    line = last_line(path, start)
    sentence = re.sub(r"^python -m [\w.]+: ", "", line)  # the command's name does not help
    return ProcessEnd(
        exit_code, _end_in_words(exit_code, line), sentence, last_traceback(path, start)
    )


def _end_in_words(exit_code: int | None, line: str) -> str:
    if exit_code == 0:
        return ""
    if exit_code is not None and exit_code < 0:
        known = {number.value: number.name for number in signal.Signals}
        return f"killed by {known.get(-exit_code, f'signal {-exit_code}')}"
    code = CODE_UNKNOWN if exit_code is None else f"exit code {exit_code}"
    return f"{code}: {line}" if line else code
