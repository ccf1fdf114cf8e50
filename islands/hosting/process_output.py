"""What a child process writes: a log file of its own, its last line, and a limit to its size.

A child writes to its file itself, so its output survives whoever started it. The file is opened
for appending, which is what lets it be emptied under a child that goes on writing.
"""

import os
import re
import shutil
import signal
from pathlib import Path

from islands.actors.ports import ProcessEnd
from islands.files.rotation import older

LIMIT_BYTES = 16 * 2**20
TOLD_CHARACTERS = 600
TRACEBACK = "Traceback (most recent call last)"
_TAIL_BYTES = 8192


def rotate(path: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Keep one full file beside the growing one, if that grew beyond the limit.

    The content is copied and the file emptied, since a child holds the file and not its name. What
    it writes between the two is lost. A disk that takes no copy leaves all as it is.

    Returns:
        Whether the file is empty now.
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
    """A descriptor that appends to a log file; a disk that takes no new file keeps no output."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def size_of(path: Path) -> int:
    """How long the file is; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def last_line(path: Path, start: int = 0) -> str:
    """The last line that is not blank, from `start` on, as printable text of bounded length."""
    lines = [line.strip() for line in _tail(path, start)]
    line = next((line for line in reversed(lines) if line), "")
    return _printable(line)[:TOLD_CHARACTERS]


def last_traceback(path: Path, start: int = 0) -> str:
    """The last traceback from `start` on, as printable lines without the last; empty if none."""
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
            start = start if start <= end else 0  # it was emptied since
            file.seek(max(start, end - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def _printable(line: str) -> str:
    return "".join(sign for sign in line if sign.isprintable())


def end_of(exit_code: int | None, path: Path, start: int = 0) -> ProcessEnd:
    """How a process ended, by its exit code and what it wrote.

    Args:
        exit_code: as the system tells it; below 0 the number of a signal; None if nobody knows.
        path: of its output.
        start: where in it this process began.
    """
    line = last_line(path, start)
    sentence = re.sub(r"^python -m [\w.]+: ", "", line)  # how it is called helps nobody
    return ProcessEnd(
        exit_code, _end_in_words(exit_code, line), sentence, last_traceback(path, start)
    )


def _end_in_words(exit_code: int | None, line: str) -> str:
    if exit_code == 0:
        return ""
    if exit_code is not None and exit_code < 0:
        return f"killed by {_signal_name(-exit_code)}"
    code = "exit code unknown" if exit_code is None else f"exit code {exit_code}"
    return f"{code}: {line}" if line else code


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
