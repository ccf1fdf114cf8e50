"""Functions compiled ahead of time, under a lock, and shared by all that need equal ones.

Models that start together compile once, and a step never finds itself compiling because another
thread was first.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import jax
from jax.sharding import Sharding
from jax.stages import Compiled
from jaxtyping import PyTree

from islands.model.jax_settings import compiling
from islands.model.placement import Placement


class CompiledFunctions:
    """Compiled functions by their names and the devices for which they were compiled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compiled: dict[object, Compiled] = {}

    @property
    def compiling(self) -> bool:
        return self._lock.locked()

    def compiled(self, place: Placement, name: object) -> Compiled | None:
        """Return a compiled function, if there is one; without the lock, so that no step waits."""
        return self._compiled.get((name, place.key))

    def compile(
        self,
        place: Placement,
        name: object,
        function: Callable[..., PyTree],
        arguments: tuple[PyTree, ...],
        *,
        donate: tuple[int, ...] = (),
        batch: int | None = None,
        parts_to: PyTree[Sharding] | None = None,
        read_here: bool = False,
    ) -> Callable[..., PyTree]:
        """Return a function compiled for these shapes, compiling at most once for a name.

        Args:
            place: The devices for which it is compiled.
            name: Name of the function; it and the devices are the key of the compiled function.
            function: The function to compile.
            arguments: Arguments like those of later calls, or their shapes.
            donate: Indices of the arguments that it may overwrite.
            batch: Index of the argument that is a batch, if one is.
            parts_to: For a function of each device's parts: the shardings of its results. None: it
                is one of whole arrays, whose results live where tensors of their shapes do.
            read_here: Whether every process will read the whole results of such a function.
        """
        compiled = self.compiled(place, name)
        if compiled is not None:
            return compiled
        function, arguments, results = place.prepared(
            function, arguments, batch, parts_to, read_here=read_here
        )
        key = (name, place.key)
        with self._lock:
            if key not in self._compiled:
                placed = {} if results is None else {"out_shardings": results}
                jitted = jax.jit(function, donate_argnums=donate, **placed)
                with _context(place, parts_to), compiling(name):
                    self._compiled[key] = jitted.lower(*arguments).compile()
            return self._compiled[key]


def _context(place: Placement, parts_to: PyTree | None) -> AbstractContextManager[object]:
    """Return a context in which a function of parts can be traced.

    `jax.shard_map` refuses a mesh that is not the one that the user's own loop may have set.
    """
    if place.mesh is None or parts_to is None:
        return nullcontext()
    context: AbstractContextManager[object] = jax.set_mesh(place.mesh)
    return context
