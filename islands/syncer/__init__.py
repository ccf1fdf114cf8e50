"""The syncer: owner of the published fragments and of the outer optimizer.

Where to find a rule:

=====================  ==========================================
when a round opens     `pace.py`
who is asked           `eligibility.py`
how many must answer   `quorum.py`
how long it waits      `grace.py`, `timeouts.py`
what is admitted       `fate.py`
what can be true       `claims.py`, `reports.py`
one round              `rounds.py`
data and token quotas  `leases.py`
what became of tokens  `ledger.py`
who is here            `sessions.py`
what the view holds    `supervisor_view.py`
who is on which link   `callers.py`
what is kept of all    `census.py`
when it is written     `records.py`
what is written        `journal.py`, `journal_writer.py`
whose time is over     `endings.py`
who may not come back  `fence.py`
whom peers may ask     `donors.py`
what is said again     `repeats.py`
when a run swings      `swings.py`
when it has diverged   `divergence.py`
when it is overloaded  `load.py`
when nothing is merged `standstill.py`
how a run stands still `pausing.py`
how a run ends         `closing.py`
how it goes on         `taking_up.py`
all of them together   `state.py`
=====================  ==========================================

`actor.py` performs what `state.py` decides and decides nothing itself; `workers.py` has the places
on which it merges and writes, `inspections.py` what is measured of an arrival, `hooks.py` what its
host does at its turning points.
"""
