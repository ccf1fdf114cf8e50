"""Training loops of the users' own take part in a run: `islands.join`.

Where to find what:

==============================================  =======================
joining a run with a tree of JAX arrays         `join.py`
joining it with a PyTorch module                `join_torch.py`
what the user holds: boundaries, steps, the end `joined_run.py`
parameters as a model, in any framework         `own_model.py`
the same in JAX, with the optimizer's state     `jax_parameters.py`
the same in PyTorch; its optimizer's state      `torch_parameters.py`, `torch_moments.py`
the user's data: leased batches                 `own_data.py`
the file that tells a hub of a model            `layouts.py`
the thread of the learner's actor               `background.py`
the same where a loop is several processes      `host_background.py`
the newest values, for one's own evaluation     `latest.py`
==============================================  =======================

The boundary itself is `islands.learner.stepped_compute`. A hub plans such a run by what its first
loop tells (`islands.layout.loop_layout`), with the workload `islands.model.workload`. What loops of
PyTorch need imports no JAX.
"""
