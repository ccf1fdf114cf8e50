"""Environment under which tests run, to be set before anything imports JAX, NumPy or numba.

Child processes inherit it. Importing this module sets it.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

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
