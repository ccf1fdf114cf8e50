"""How loops become machine code, which is cached beside their file for the next start."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types

Compiler = Any  # objects of the compiler, whose own annotations cover little of it
_Loop = TypeVar("_Loop", bound=Callable[..., object])


def compiled(*signature: Compiler, reordered: bool = False) -> Callable[[_Loop], _Loop]:
    """Compile a loop for a signature at once, or without one at its first call.

    No operation is reordered or fused, unless it is a sum whose terms may be added in any order.
    """
    compiler: Compiler = njit
    given = [cast("Compiler", types).void(*signature)] if signature else []
    fastmath = {"reassoc", "contract"} if reordered else False
    options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}

    def compile_(function: _Loop) -> _Loop:
        try:
            return cast("_Loop", compiler(*given, cache=True, **options)(function))
        except RuntimeError:  # there is nowhere to cache it (a read-only disk)
            return cast("_Loop", compiler(*given, **options)(function))

    return compile_
