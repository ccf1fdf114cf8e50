"""The syncer: owner of the published fragments and of the outer optimizer.

Where to find a rule:

=================================  ===================================
when a round opens                 `pace.py`
on which fragment, whom it asks    `scheduling.py`
rounds that learners open          `turns.py`
who gets a new value               `recipients.py`
which learners are eligible        `eligibility.py`
the quorum of a round              `quorum.py`
grace, timeouts                    `grace.py`, `timeouts.py`
admission of contributions         `admission.py`
checks of reported numbers         `plausibility.py`, `reports.py`
the state of one round             `rounds.py`
what a merge changes               `commits.py`
how version 0 is fetched           `commits.py`, `seeding.py`
data leases and token quotas       `leases.py`
the fate of every token            `ledger.py`
how far own data was read           `positions.py`
membership: links and learners     `sessions.py`, `roster.py`
peer names by connection           `connection_index.py`
who may send shares of an island   `share_sessions.py`
how shares become a contribution   `assembly.py`
whole, as increments, in shares    `value_sender.py`
totals over all learners           `learner_index.py`
when a journal record is written   `record_schedule.py`
writing the journal, recovery      `journal.py`, `journal_writer.py`
ended incarnations, fencing        `ended_incarnations.py`, `fence.py`
donors of inner moments            `state_donors.py`
retransmission                     `retries.py`
who is sent increments             `increments.py`
versions to contribute from        `kept_versions.py`
when old values are freed          `old_values.py`
how long a turn is                 `turn_length.py`
when merged directions swing       `swings.py`
when the run has diverged          `divergence.py`
when the syncer is overloaded      `overload.py`
when nothing is merged             `standstill.py`
whom the run waits for             `standing.py`
how a run is paused                `pausing.py`
how a run ends                     `closing.py`
which journals may be resumed      `resume_checks.py`
the memory that rules act on       `core.py`
all rules together                 `state.py`
=================================  ===================================

`actor.py` performs what `state.py` decides and decides nothing itself. `vault.py` holds the arrays,
`workers.py` the worker threads that measure, merge and write, `inspection_queue.py` the payloads
that wait to be measured, `share_desk.py` takes the shares of islands, and `hooks.py` has the calls
into the syncer's host.
"""
