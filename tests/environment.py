"""Environment under which tests run, to be set before anything imports JAX, NumPy or numba.

Child processes inherit it. Importing this module sets it.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

GAP_S, WAITED_S = 0.02, 1.0
"""By how much the loss of one island may lengthen the longest gap between steps of another: where
a test has the machine for itself, and beside others, where a step that waited would still show."""


def gap_limit_s() -> float:
    return WAITED_S if "PYTEST_XDIST_WORKER" in os.environ else GAP_S


os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"  # float32 + bfloat16 is an error, not a guess
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
# Workers of pytest and their children compile each function once, and keep it between runs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["PJRT_NPROC"] = "4"  # XLA threads: fewer than learners in one process starve some
for pool in ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(pool, "1")
