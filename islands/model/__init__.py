"""Tasks, workloads and trainers: what a run trains, and the arithmetic of one learner.

- `compiled_functions.py`: Functions compiled ahead of time, under a lock
- `compiled_steps.py`: The functions of one task under one layout
- `device_transfer.py`: Functions that run on the device between two steps
- `evaluation.py`: Run an evaluation by the user's own code
- `jax_model.py`: The leaves of a layout on their devices
- `jax_results.py`: What a trainer has asked of the device and may read once it is there
- `jax_settings.py`: How a process sets up JAX
- `jax_trainer.py`: A `Trainer` that trains a `Task` with JAX, on one device or on a mesh …
- `jax_workload.py`: A workload that trains a `Task` with JAX
- `leaf_checks.py`: Refusals of leaves that a user's own loop hands in
- `mesh.py`: On which devices one learner computes: one device, or a mesh of several
- `model.py`: The interface of the arrays of one learner's model, as a step boundary uses them
- `moment_pieces.py`: The inner optimizer's state as pieces of bytes, to send to a peer that lost …
- `moment_plan.py`: How the state of an inner optimizer is cut into pieces of bytes, whatever …
- `own_loop.py`: The workload of a hub whose learners train in loops of their own
- `placement.py`: The devices on which a model's leaves and flat values are
- `rectangles.py`: Rows of a leaf of which each device has a rectangle
- `second_moments.py`: Second moments of the averaged gradient
- `task_check.py`: Check before a run whether a task keeps its contract
- `trainer.py`: The interface of one learner's arithmetic, as the compute thread uses it
- `workload.py`: A workload gives a process what it needs to train
"""
