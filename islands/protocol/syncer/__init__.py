"""The syncer's rules: which round opens, who is asked, what is merged, and every token's fate.

What it knows, below the rules:

- `recovery.py`: The state that a restarted syncer reads, where a standby would take over, and
  whether a journal may be resumed
- `core.py`: The memory that rules act on
- `members.py`: Records of learners, totals over all of them, and the fence of ended incarnations
- `rounds.py`: The state of one round
- `pulls.py`: The pulls that a learner has yet to answer, each with one end
- `versions.py`: Newest versions, increments between them, the fetch of version 0
- `leases.py`: Data leases and token quotas
- `ledger.py`: The fate of every token
- `journalling.py`: How far own data was read, and when a journal record is written
- `health.py`: Standstill and divergence, each with its warning
- `events.py`: What the state handles
- `actions.py`: What it returns; the actor performs it in order

Rules that look at one thing:

- `eligibility.py`: Which learners may be asked
- `precision.py`: `precision: adaptive`, by the measured link of each learner
- `plausibility.py`: What makes a weight honest: checks of reported numbers, and of norms
- `grace.py`: Grace, quorum, the pace of rounds, the length of turns
- `timeouts.py`: Every other wait, from measured times
- `stability.py`: How long an outer step may be

Rules that act:

- `state.py`: All rules together: event by event, to a fixed point
- `sessions.py`: Links of peers, and the supervisor's view of them
- `reports.py`: Reports of learners, checked and taken into the books
- `scheduling.py`: On which fragment the next round opens, whom it asks, when it closes
- `contribution_admission.py`: The fate of a contribution that arrived
- `commits.py`: New versions, and when the values of old ones are freed
- `seeding.py`: Where version 0 comes from
- `recipients.py`: To whom a value is sent, and when again
- `granting.py`: Who is given data and tokens
- `retirement.py`: The end of an incarnation, and what it leaves to others
- `donors.py`: Donors of inner moments
- `standstill.py`: Whom the run waits for
- `retries.py`: Retransmission, and the sweep that looks for what is wrong
- `pausing.py`: How a run is paused
- `closing.py`: How a run ends
"""
