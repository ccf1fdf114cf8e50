"""Training loops of the users' own take part in a run: `islands.join`.

The boundary itself is `islands.learner.stepped_compute`. A hub plans such a run by what its first
loop tells (`islands.layout.loop_layout`), with the workload `islands.model.workload`. What loops of
PyTorch need imports no JAX.
"""
