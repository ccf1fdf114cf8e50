"""Learners without a model: cheap arithmetic for simulations, and steps that only sleep.

- `toy.py`: Trainers without JAX: cheap arithmetic for simulations, and steps that only sleep
- `toy_workload.py`: A workload whose learners' devices only sleep
"""
