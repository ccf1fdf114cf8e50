"""Find the line of a user's own file that an error comes from; error messages begin with it.

An error raised by a task passes through frames of JAX, of this package and of the standard library.
The line is that of the innermost frame that is none of these: first outside of all installed
packages, and where there is none (the task is itself installed), outside of the libraries here.
"""

import dis
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TypeVar

from islands.protocol.errors import (
    EXTRAS,
    IslandsError,
    TaskError,
    TaskFailedError,
    missing_package,
)

LIBRARIES = frozenset(
    (
        *("jax", "jaxlib", "flax", "optax", "chex", "equinox", "grain", "orbax", "jaxtyping"),
        *("beartype", "numpy", "ml_dtypes", "msgspec", "safetensors", "uvloop", "numba"),
        *("islands", "messaging"),
    )
)
"""Installed packages that are never the user's own code."""

HINTS = {
    "TraceContextError": "in NNX, work on a copy: nnx.merge(graphdef, params, state, copy=True)",
}
"""Advice on errors of libraries whose messages do not say what to do."""

ErrorT = TypeVar("ErrorT", bound=IslandsError)

PACKAGES = ("site-packages", "dist-packages")
FRAMES_MAX = 12
_STANDARD = Path(sysconfig.get_path("stdlib"))
_HERE = Path(__file__).parents[1]
_OURS = (_HERE, _HERE.parent / "messaging")
_EXAMPLES = _HERE / "tasks"
_CONTRACT = tuple(
    _EXAMPLES / name
    for name in ("data", "factory.py", Path(__file__).name, "task.py", "task_trace.py")
)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a user's file."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Render as ``model.py:41, in loss``, as terminals and editors open it."""
        path = Path(self.file)
        here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"{here}:{self.line}, in {self.function}"


def location_of(error: BaseException) -> SourceLocation | None:
    """Find where the user's code raised an error or called what raised it; None if it did not."""
    for each in _chain(error):
        codes = [(frame.f_code, line) for frame, line in traceback.walk_tb(each.__traceback__)]
        frames = [SourceLocation(c.co_filename, line, c.co_name) for c, line in codes]
        found = innermost(frames)
        if found is not None:
            return found
        if isinstance(each, SyntaxError) and each.filename:
            return SourceLocation(each.filename, each.lineno or 1, "<module>")
    return None


def innermost(frames: list[SourceLocation]) -> SourceLocation | None:
    """Return the innermost frame that is the user's, given frames from the outermost on."""
    for is_theirs in (_outside_of_packages, _outside_of_libraries):
        theirs = [frame for frame in frames if is_theirs(frame.file)]
        if theirs:
            return theirs[-1]
    return None


def location_of_return(function: Callable[..., object]) -> SourceLocation | None:
    """Find the last line on which a function returns; None if its code is not known."""
    code = _code(function)
    if code is None:
        return None
    lines = [
        each.positions.lineno
        for each in dis.get_instructions(code)
        if each.opname.startswith("RETURN") and each.positions and each.positions.lineno
    ]
    return SourceLocation(code.co_filename, max(lines, default=code.co_firstlineno), code.co_name)


def location_of_yield(
    iterator: Iterator[object], function: Callable[..., object]
) -> SourceLocation | None:
    """Find the line where a generator is suspended, or of another iterator, `function`'s return."""
    if inspect.isgenerator(iterator) and iterator.gi_frame is not None:
        frame = iterator.gi_frame
        return SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return location_of_return(function)


def said(error: BaseException) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def refused(line: SourceLocation | None, sentence: str) -> TaskError:
    """Make the error that begins with a line of the user's, if one is known."""
    return TaskError(_with_line(line, sentence))


def located(
    kind: type[ErrorT], error: BaseException, sentence: str, line: SourceLocation | None = None
) -> ErrorT:
    """Make an error that begins with the line from which another comes, and shows its frames.

    If that one comes from no line of the user's, another line may be named.
    """
    made = kind(_with_line(location_of(error) or line, sentence))
    made.detail = user_frames(error)
    made.__cause__ = error
    return made


def _with_line(line: SourceLocation | None, sentence: str) -> str:
    return sentence if line is None else f"{line}: {sentence}"


def user_frames(error: BaseException) -> str:
    """Format the traceback without the frames of libraries; empty if no other frame is in it."""
    theirs: list[traceback.FrameSummary] = []
    for each in _chain(error):
        theirs = [x for x in traceback.extract_tb(each.__traceback__) if _is_theirs(x.filename)]
        if theirs:
            break
    if not theirs:
        return ""
    plain = traceback.TracebackException(type(error), error, None)
    plain.__notes__ = None  # JAX adds notes on how it shortens tracebacks
    shown = [*traceback.format_list(theirs[-FRAMES_MAX:]), *plain.format_exception_only()]
    return "Traceback (most recent call last), without frames of libraries:\n" + "".join(shown)


def task_error(error: Exception, what: str, line: SourceLocation | None = None) -> IslandsError:
    """Make the sentence that says what the user has to correct, and ends with a clause.

    An `IslandsError` is returned unchanged. For the line, see `located`.
    """
    if isinstance(error, IslandsError):
        return error
    hint = HINTS.get(type(error).__name__)
    package = missing_package(error)
    if package is not None:
        hint = f"install it with: pip install 'islands[{EXTRAS[package]}]'"
    return located(TaskError, error, "; ".join(filter(None, (said(error), what, hint))), line)


def task_failure(error: BaseException, what: str) -> Exception:
    """Make an error as `task_error` does, for a failure that may succeed when it is retried.

    One without a frame of the user's code is returned unchanged, if it is an `Exception`.
    """
    if isinstance(error, Exception) and (
        isinstance(error, IslandsError) or location_of(error) is None
    ):
        return error
    return located(TaskFailedError, error, f"{said(error)}; {what}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors it was raised from, each once."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _code(function: Callable[..., object]) -> CodeType | None:
    plain = inspect.unwrap(function)
    code = getattr(getattr(plain, "__func__", plain), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _is_theirs(file: str) -> bool:
    return _outside_of_packages(file) or _outside_of_libraries(file)


def _outside_of_packages(file: str) -> bool:
    path = Path(file)
    if file.startswith(("<frozen", "<string", "<__array", "<@beartype", "<jaxtyping")):
        return False
    if any(name in path.parts for name in PACKAGES) or path.is_relative_to(_STANDARD):
        return False
    ours = _CONTRACT if path.is_relative_to(_EXAMPLES) else _OURS
    return not any(path.is_relative_to(folder) for folder in ours)


def _outside_of_libraries(file: str) -> bool:
    parts = Path(file).parts
    inside = [parts.index(name) for name in PACKAGES if name in parts]
    if not inside or inside[0] + 1 >= len(parts):
        return False
    package = parts[inside[0] + 1].removesuffix(".py")
    return package not in LIBRARIES
