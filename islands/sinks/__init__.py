"""Where the records of a run go beside its own files: TensorBoard, and what others keep of runs.

The hub writes for TensorBoard through the run's own spool. Every other sink is a process of its own
(`--sinks NAME,…`), which reads the run's folder as it grows; it is a file `NAME_sink.py` here.
"""

from pkgutil import iter_modules

SINKS = tuple(n.removesuffix("_sink") for _, n, _ in iter_modules(__path__) if n.endswith("_sink"))
