"""The learner steps on its own clock, answers pulls, adopts updates, and waits for nobody.

Where to find a rule:

=====================================  ===============
membership, fencing of old syncers     `membership.py`
permission to step, adoption           `training.py`
answers to pulls and seed requests     `answering.py`
which snapshot answers a pull          `pulls.py`
when a learner waits for a round       `synchrony.py`, `turns.py`
how many snapshots may be copied       `snapshot_copies.py`
recovery of the optimizer's moments    `moments_recovery.py`, on `moments.py`
moments given to a restarted peer      `donating.py`
graceful shutdown (drain)              `leaving.py`
token accounting of one fragment       `account.py`
estimate of the fleet's step count     `fleet_clock.py`
progress messages on the terminal      `narration.py`
what an island's other hosts are asked `sharing.py`
checkpoint of the moments on disk      `moments_checkpoint.py`
the learner's memory                   `core.py`
dispatch of events to all these rules  `state.py`
=====================================  ===============

`actor.py` performs what `state.py` decides and decides nothing itself. `compute.py` owns the
device; there `boundary.py` carries out commands between two steps, and `engine.py` feeds the steps.
"""
