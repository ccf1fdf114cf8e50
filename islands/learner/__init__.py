"""The learner: steps on its own clock, answers pulls, adopts updates, waits for nobody.

Where to find a rule:

=====================================  ===============
who admits it, whom it follows         `membership.py`
when it steps, what it adopts          `training.py`
what it answers to the syncer          `answering.py`
which snapshot answers a pull          `pulls.py`
which snapshots are taken              `snapshot_copies.py`
whose moments it begins with           `asking.py`, on `moments.py`
whom it gives its moments              `donating.py`
how it departs                         `leaving.py`
what it did with one fragment          `account.py`
what time it is in the fleet           `fleet_clock.py`
what it tells on its own terminal      `narration.py`
what is left of it on its host's disk  `kept_moments.py`
what it knows                          `core.py`
all of them together                   `state.py`
=====================================  ===============

`actor.py` performs what `state.py` decides and decides nothing itself; `compute.py` owns the
device, `engine.py` is what it does there.
"""
