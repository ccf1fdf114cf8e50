"""The syncer: owner of the published fragments and of the outer optimizer.

Where to find a rule:

=====================  ==========================================
when a round opens     `pace.py`
who is asked           `eligibility.py`
how long it waits      `grace.py`
what is admitted       `fate.py`
one round              `rounds.py`
data and token quotas  `leases.py`
how a run ends         `closing.py`
all of them together   `state.py`
=====================  ==========================================

`actor.py` performs what `state.py` decides and decides nothing itself.
"""
