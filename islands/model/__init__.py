"""What a run trains, and the arithmetic of one learner.

- `compiled_functions.py`: Functions compiled ahead of time, under a lock
- `compiled_steps.py`: The functions of one task under one layout
- `device_transfer.py`: Functions that run on the device between two steps
- `evaluation.py`: Run an evaluation by the user's own code
- `interfaces.py`: The interfaces of a workload, of its trainers and of their models
- `jax_model.py`: The leaves of a layout on their devices
- `jax_settings.py`: How a process sets up JAX: its threads, and the cache of compiled functions
- `jax_trainer.py`: A `Trainer` that trains a `Task` with JAX, on one device or on a mesh
- `jax_workload.py`: A workload that trains a `Task` with JAX
- `leaf_checks.py`: Refusals of leaves that a user's own loop hands in
- `memory.py`: Estimate how much of a host's memory each process of a run takes at its peak
- `memory_faults.py`: A host's memory, and the sentence that tells that there is too little
- `moment_pieces.py`: The inner optimizer's state as pieces of bytes
- `moment_plan.py`: How the state of an inner optimizer is cut into pieces of bytes
- `placement.py`: On which devices one learner computes: one device, or a mesh of several
- `second_moments.py`: Second moments of the averaged gradient
- `task_check.py`: Check before a run whether a task keeps its contract
- `workload.py`: Workloads by name, and that of a hub whose learners have own loops
"""
