"""What is trained, and the arithmetic of one learner.

Where to find what:

===================================  ====================================
what a user writes                   `task.py`
whether it keeps its contract        `task_check.py`
which line of it does not            `task_trace.py`
where in a user's files              `code_place.py`
what a process needs of it           `workload.py`
the same with JAX, or only sleeping  `jax_workload.py`, `toy_workload.py`
the arithmetic of a learner          `trainer.py`
the same with JAX, or NumPy          `jax_trainer.py`, `toy.py`
compiled functions, shared           `compiled_steps.py`
threads and caches of JAX            `jax_settings.py`
moments, piece by piece              `moment_pieces.py`
figures by the user's code           `evaluation.py`
version 0 from a file                `warm_start.py`
parameters as a file                 `export.py`
memory of each process               `process_memory.py`
memory of this host                  `host_memory.py`
`package.module:factory`             `factory.py`
===================================  ====================================
"""
