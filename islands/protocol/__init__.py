"""The protocol: every rule of a run as a decision, by place pure.

It needs `msgspec` and nothing else.

- `credentials.py`: Signed admissions
- `errors.py`: The exceptions of `islands`
- `histogram.py`: A histogram of durations on a logarithmic scale
- `identities.py`: The identities that messages carry and that fencing compares
- `membership.py`: Membership of one process in a run
- `moving_average.py`: A moving average of measured times and rates
- `ranges.py`: Which elements of a flat value each process of a learner holds
- `sessions.py`: events and actions of a process that keeps sessions with supervisor and syncer
- `supervisor_view.py`: A copy of the supervisor's membership view
"""
