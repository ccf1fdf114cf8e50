"""Functions compiled ahead of time, under a lock, and shared by all that need equal ones.

Models that start together compile once, and a step never finds itself compiling because another
thread was first.
"""

import threading
from collections.abc import Callable
from contextlib import nullcontext

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

    def compile(
        self,
        placement: Placement,
        name: object,
        function: Callable[..., PyTree],
        arguments: tuple[PyTree, ...],
        *,
        donate: tuple[int, ...] = (),
        batch: int | None = None,
        parts_to: PyTree[Sharding] | None = None,
        read_here: bool = False,
    ) -> Compiled:
        """Return a function compiled for devices and shapes, compiling at most once for a name.

        One that is compiled is returned without the lock, so that no step waits. The arguments are
        like those of later calls, or their shapes; it may overwrite those that it is donated. For
        the others see `Placement.prepared`.
        """
        key = (name, placement.key)
        if (compiled := self._compiled.get(key)) is not None:
            return compiled
        function, arguments, results = placement.prepared(
            function, arguments, batch, parts_to, read_here=read_here
        )
        with self._lock:
            if key not in self._compiled:
                to = {} if results is None else {"out_shardings": results}
                jitted = jax.jit(function, donate_argnums=donate, **to)
                # shard_map refuses a mesh other than the one that the user's loop may have set.
                mesh = None if parts_to is None else placement.mesh
                context = nullcontext() if mesh is None else jax.set_mesh(mesh)
                with context, compiling(name):
                    self._compiled[key] = jitted.lower(*arguments).compile()
            return self._compiled[key]
