"""How processes that tests start compile, where neither bits nor speed are asked for."""

QUICKLY_COMPILED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""Environment in which XLA compiles in half of the time."""
