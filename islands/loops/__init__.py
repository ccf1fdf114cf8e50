"""Training loops of the users' own take part in a run: `islands.join`.

Where to find what:

==========================================  ======================
what the user holds                         `joined_run.py`
a tree of JAX arrays as a model             `jax_parameters.py`
a PyTorch module as a model                 `torch_parameters.py`
the state of the user's own optimizer       `own_moments.py`
the same in JAX, and in PyTorch             `jax_moments.py`, `torch_moments.py`
which leaf is which of the run's            `places.py`
how far the user's own data was read        `cursors.py`
batches of records that the syncer leases   `leased_batches.py`
joining, by kind of parameters              `join.py`, `join_torch.py`
the file that tells a hub of a model        `layouts.py`
the newest values, for one's own evaluation `latest.py`
the thread of the learner's actor           `background.py`
the same where a loop is several processes  `host_background.py`
==========================================  ======================

The boundary itself is `islands.learner.stepped_compute`. A hub plans such a run from a file
(`islands.layout.layout_file`), by the workload `islands.model.own_loop`.

- `torch_refusals.py`: Refusals of what a loop of PyTorch cannot take part with, each in a sentence
"""
