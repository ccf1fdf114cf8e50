"""Tasks, workloads and trainers: what a run trains, and the arithmetic of one learner.

Where to find what:

===================================  ====================================
the class that a user writes         `task.py`
check of a task before a run         `task_check.py`
check of its traced functions        `task_trace.py`
lines of a user's files in errors    `source_location.py`
what a process needs of a task       `workload.py`
workloads with JAX, or sleeping      `jax_workload.py`, `toy_workload.py`
a learner's arrays, as an interface  `model.py`
interface of a learner's arithmetic  `trainer.py`
trainers with JAX, or NumPy          `jax_trainer.py`, `toy.py`
leaves and bases on their devices    `jax_model.py`
functions of a task, shared          `compiled_steps.py`
functions compiled ahead of time     `compiled_functions.py`
losses and differences on their way  `jax_results.py`
threads and caches of JAX            `jax_settings.py`
moments, piece by piece              `moment_pieces.py`, `moment_plan.py`
second moments, told by first ones   `second_moments.py`
evaluation by the user's code        `evaluation.py`
version 0 from a file                `warm_start.py`
parameters as a file                 `export.py`
memory of each process               `process_memory.py`
memory of this host                  `host_memory.py`
memory that is not there             `memory_faults.py`
loading `package.module:factory`     `factory.py`
===================================  ====================================
"""
