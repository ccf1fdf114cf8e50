"""The protocol: every rule of a run as a decision, by place pure.

It needs `msgspec` and nothing else.

- `credentials.py`: Signed admissions
- `errors.py`: The exceptions of `islands`
- `handlers.py`: The handlers of messages that are events as they come
- `identities.py`: The identities that messages carry and that fencing compares
- `lost_links.py`: How often a link was lost of late
- `membership.py`: Membership of one process in a run, and its copy of the supervisor's view
- `ranges.py`: Which elements of a flat value each process of a learner holds
- `running_statistics.py`: A moving average, and a histogram of durations
- `sessions.py`: Events and actions of a process that keeps sessions with supervisor and syncer
"""
