"""Find the line of a user's own file that an error comes from; error messages begin with it.

An error raised by a task passes through frames of JAX, of this package and of the standard library.
Its place is the innermost frame that is none of these: first outside of all installed packages,
and where there is none (the task is itself installed), outside of the libraries known here.
"""

import dis
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

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
    )
)
"""Installed packages that are never the user's own code."""

HINTS = {
    "TraceContextError": "in NNX, work on a copy: nnx.merge(graphdef, params, state, copy=True)",
}
"""Advice on errors of libraries whose messages do not say what to do."""

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
        frames = [_frame(*pair) for pair in traceback.walk_tb(each.__traceback__)]
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
    """Return an error's type and the first line of its message."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def with_location(place: SourceLocation | None, sentence: str) -> str:
    """Put the place, if there is one, in front of a sentence."""
    return sentence if place is None else f"{place}: {sentence}"


def refused(place: SourceLocation | None, sentence: str) -> TaskError:
    """Make the error that begins with a place."""
    return TaskError(with_location(place, sentence))


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


def task_error(error: Exception, what: str) -> IslandsError:
    """Make the error that tells the user what to correct, in one sentence that names the place.

    Args:
        error: error that the task's code raised; an `IslandsError` is returned unchanged.
        what: clause that says what failed, for the end of the sentence.
    """
    if isinstance(error, IslandsError):
        return error
    hint = HINTS.get(type(error).__name__)
    package = missing_package(error)
    if package is not None:
        hint = f"install it with: pip install 'islands[{EXTRAS[package]}]'"
    told = "; ".join(filter(None, (said(error), what, hint)))
    made = TaskError(with_location(location_of(error), told))
    made.detail = user_frames(error)
    made.__cause__ = error
    return made


def task_failure(error: BaseException, what: str) -> Exception:
    """Make an error as `task_error` does, for a failure that may succeed when it is retried.

    Args:
        error: error that was raised; it is returned unchanged if it is an `IslandsError`, or has
            no frame of the user's code; one that is no `Exception`, such as `SystemExit`, never is.
        what: clause that says what failed, for the end of the sentence.
    """
    place = location_of(error)
    if isinstance(error, IslandsError) or (place is None and isinstance(error, Exception)):
        return error
    made = TaskFailedError(with_location(place, f"{said(error)}; {what}"))
    made.detail = user_frames(error)
    made.__cause__ = error
    return made


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors it was raised from, each once."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _frame(frame: object, line: int) -> SourceLocation:
    code: CodeType = frame.f_code  # type: ignore[attr-defined]  # walk_tb gives frames
    return SourceLocation(code.co_filename, line, code.co_name)


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
    return not any(path.is_relative_to(place) for place in ours)


def _outside_of_libraries(file: str) -> bool:
    parts = Path(file).parts
    inside = [parts.index(name) for name in PACKAGES if name in parts]
    if not inside or inside[0] + 1 >= len(parts):
        return False
    package = parts[inside[0] + 1].removesuffix(".py")
    return package not in LIBRARIES | {"islands", "messaging"}
