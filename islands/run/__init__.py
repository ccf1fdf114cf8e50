"""The composition of one run, and the files that it leaves behind.

Where to find what:

=====================================  ============================
a run composed over any backend        `composition.py`
when a run has ended or failed         `run_end.py`
the state of a run at one moment       `run_status.py`
a learner's process, however it runs   `learner_process.py`
factories of syncer and observer       `roles.py`
all actors in one process              `single_process.py`
a hub: supervisor and run folder       `coordinator.py`
a hub with its children on one host    `local_cluster.py`
a hub's exclusive claim on a folder    `run_claim.py`
estimated memory, disk and network     `planner.py`
=====================================  ============================

- `first_layout.py`: A hub without a task before it has a run
"""
