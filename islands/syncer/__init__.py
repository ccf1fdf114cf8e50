"""The syncer: owner of the published fragments and of the outer optimizer.

Where to find a rule:

=================================  ===================================
when a round opens                 `pace.py`
on which fragment, whom it asks    `scheduling.py`
who may be asked                   `eligibility.py`
how many must answer               `quorum.py`
how long it waits                  `grace.py`, `timeouts.py`
what is admitted                   `admission.py`
what can be true                   `claims.py`, `reports.py`
one round                          `rounds.py`
what a merge changes               `commits.py`
data and token quotas              `leases.py`
what became of tokens              `ledger.py`
who is here                        `sessions.py`, `roster.py`
what the view holds                `supervisor_view.py`
who is on which link               `callers.py`
what is kept of all                `census.py`
when it is written                 `records.py`
what is written, and read again    `journal.py`, `journal_writer.py`
an incarnation that has ended      `ended_incarnations.py`, `fence.py`
whom peers may ask                 `state_donors.py`
what is said again                 `retries.py`
when a run swings                  `swings.py`
when it has diverged               `divergence.py`
when it is overloaded              `load.py`
when nothing is merged             `standstill.py`
how a run is paused                `pausing.py`
how a run ends                     `closing.py`
which journal may be gone on with  `resume_checks.py`
what it knows                      `core.py`
all of them together               `state.py`
=================================  ===================================

`actor.py` performs what `state.py` decides and decides nothing itself; `vault.py` holds the values,
`workers.py` has the places on which it merges and writes, `inspections.py` what is measured of an
arrival, `hooks.py` what its host does at its turning points.
"""
