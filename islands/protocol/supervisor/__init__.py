"""The supervisor's rules: who is admitted, who is evicted, and what is started again.

- `actions.py`: the actions that a supervisor's state decides on; the actor performs them in order
- `commands.py`: an operator's commands
- `core.py`: the supervisor's memory, and the few operations on it that several rules share
- `events.py`: the events that a supervisor handles
- `eviction.py`: suspect, stalled, evicted: when; and when a stalled process is killed
- `launching.py`: which processes are started, restarted
- `membership.py`: admission, heartbeats, ends of members
- `names.py`: which joiner gets a contested name
- `restarts.py`: how often one process is restarted
- `state.py`: dispatch of events to all these rules
- `view.py`: the membership view sent to syncers
"""
