"""Learners without a model: cheap arithmetic for simulations, and steps that only sleep."""
