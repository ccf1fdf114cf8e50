"""The learner: steps on its own clock, answers pulls, adopts updates, waits for nobody.

====================================  =============
what it did with one fragment         `account.py`
when it answers a pull, and with what `pulls.py`
all decisions together                `state.py`
====================================  =============

`actor.py` performs what `state.py` decides; `islands/compute.py` owns the device.
"""
