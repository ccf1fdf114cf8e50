"""Where in a user's own files something happened: the file and line that a sentence begins with.

What a task raises has passed through frames of JAX, of this package and of the standard library.
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
from types import CodeType, TracebackType

from islands.errors import IslandsError, TaskError, TaskFailedError

LIBRARIES = frozenset(
    (
        *("jax", "jaxlib", "flax", "optax", "chex", "equinox", "grain", "orbax", "jaxtyping"),
        *("beartype", "numpy", "ml_dtypes", "msgspec", "safetensors", "uvloop", "numba"),
    )
)
"""Installed packages that are nobody's own code."""

HINTS = {
    "TraceContextError": "in NNX, work on a copy: nnx.merge(graphdef, params, state, copy=True)",
}
"""How to mend what libraries say in words of their own."""

PACKAGES = ("site-packages", "dist-packages")
FRAMES_MAX = 12
_STANDARD = Path(sysconfig.get_path("stdlib"))
_HERE = Path(__file__).parents[1]
_OURS = (_HERE, _HERE.parent / "messaging")
_EXAMPLES = (_HERE / "tasks", _HERE / "models")


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A line of a user's file."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Render as ``model.py:41, in loss``, as terminals and editors open it."""
        path = Path(self.file)
        here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"{here}:{self.line}, in {self.function}"


def place_of(error: BaseException) -> CodePlace | None:
    """Where the user's code raised this, or called what raised it; None if it did neither."""
    for each in _chain(error):
        frames = [_frame(*pair) for pair in traceback.walk_tb(each.__traceback__)]
        found = innermost(frames)
        if found is not None:
            return found
        if isinstance(each, SyntaxError) and each.filename:
            return CodePlace(each.filename, each.lineno or 1, "<module>")
    return None


def innermost(frames: list[CodePlace]) -> CodePlace | None:
    """The last of these frames that is the user's, the outermost coming first."""
    for is_theirs in (_outside_of_packages, _outside_of_libraries):
        theirs = [frame for frame in frames if is_theirs(frame.file)]
        if theirs:
            return theirs[-1]
    return None


def place_in_traceback(found: TracebackType | None) -> CodePlace | None:
    """As `place_of`, for a traceback that belongs to no error."""
    return innermost([_frame(*pair) for pair in traceback.walk_tb(found)])


def place_of_return(function: Callable[..., object]) -> CodePlace | None:
    """The last line on which a function returns; None if its code is not known."""
    code = _code(function)
    if code is None:
        return None
    lines = [
        each.positions.lineno
        for each in dis.get_instructions(code)
        if each.opname.startswith("RETURN") and each.positions and each.positions.lineno
    ]
    return CodePlace(code.co_filename, max(lines, default=code.co_firstlineno), code.co_name)


def place_of_yield(iterator: Iterator[object], function: Callable[..., object]) -> CodePlace | None:
    """The line at which a generator stands; where it is none, that on which `function` returns."""
    if inspect.isgenerator(iterator) and iterator.gi_frame is not None:
        frame = iterator.gi_frame
        return CodePlace(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return place_of_return(function)


def said(error: BaseException) -> str:
    """An error's type and the first line of what it says."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def told_as(place: CodePlace | None, sentence: str) -> str:
    """A sentence that begins with its place, if there is one."""
    return sentence if place is None else f"{place}: {sentence}"


def user_frames(error: BaseException) -> str:
    """The traceback without the frames of libraries; empty if nothing else is in it."""
    theirs: list[traceback.FrameSummary] = []
    for each in _chain(error):
        theirs = [x for x in traceback.extract_tb(each.__traceback__) if _is_theirs(x.filename)]
        if theirs:
            break
    if not theirs:
        return ""
    plain = traceback.TracebackException(type(error), error, None)
    plain.__notes__ = None  # JAX's own on how it shortens tracebacks
    shown = [*traceback.format_list(theirs[-FRAMES_MAX:]), *plain.format_exception_only()]
    return "Traceback (most recent call last), without frames of libraries:\n" + "".join(shown)


def mistake(error: Exception, what: str) -> IslandsError:
    """What the user has to mend in the task, as one sentence that begins with the place.

    Args:
        error: that the task's code raised; what is already a sentence of ours stays as it is.
        what: that failed, as the end of the sentence.
    """
    if isinstance(error, IslandsError):
        return error
    hint = HINTS.get(type(error).__name__)
    told = "; ".join(filter(None, (said(error), what, hint)))
    made = TaskError(told_as(place_of(error), told))
    made.detail = user_frames(error)
    made.__cause__ = error
    return made


def failure(error: Exception, what: str) -> Exception:
    """As `mistake`, for what may succeed the next time; an error of no user's code stays as it is.

    Args:
        error: that was raised.
        what: that failed, as the end of the sentence.
    """
    place = place_of(error)
    if isinstance(error, IslandsError) or place is None:
        return error
    made = TaskFailedError(told_as(place, f"{said(error)}; {what}"))
    made.detail = user_frames(error)
    made.__cause__ = error
    return made


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from, each once."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _frame(frame: object, line: int) -> CodePlace:
    code: CodeType = frame.f_code  # type: ignore[attr-defined]  # walk_tb gives frames
    return CodePlace(code.co_filename, line, code.co_name)


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
    example = any(path.is_relative_to(folder) for folder in _EXAMPLES)
    return example or not any(path.is_relative_to(folder) for folder in _OURS)


def _outside_of_libraries(file: str) -> bool:
    parts = Path(file).parts
    inside = [parts.index(name) for name in PACKAGES if name in parts]
    if not inside or inside[0] + 1 >= len(parts):
        return False
    package = parts[inside[0] + 1].removesuffix(".py")
    return package not in LIBRARIES | {"islands", "messaging"}
