"""The supervisor's rules: who is admitted, who is evicted, and what is started again.

- `actions.py`: Actions that a supervisor's state decides on; the actor performs them in order
- `commands.py`: What an operator may ask for
- `core.py`: The supervisor's memory, and the few operations on it that several rules share
- `events.py`: Events that a supervisor handles
- `eviction.py`: Suspect, stalled, evicted: when
- `launching.py`: Which processes are started, restarted
- `membership.py`: Admission, heartbeats, ends of members
- `names.py`: Which joiner gets a contested name
- `restarts.py`: How often one process is restarted
- `stalls.py`: When a stalled process is killed
- `state.py`: All decisions together
- `view.py`: The membership view sent to syncers
"""
